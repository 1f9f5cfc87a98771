"""Supervision of a command from its start to its end."""
