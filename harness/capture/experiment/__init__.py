"""Reproducers: which there are, and what they tell while they run."""
