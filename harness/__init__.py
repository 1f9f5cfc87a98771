"""Which native component killed or stalled this Python process, on what evidence, and what to do about it."""

__version__ = "0.1.0"
