"""A command that stands still while it is supervised: since when, and a look at it."""
