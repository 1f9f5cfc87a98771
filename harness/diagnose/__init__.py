"""Judgement: pure functions from evidence to a verdict. Touches no process and no file."""
