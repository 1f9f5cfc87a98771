"""Core files: whether there will be one, where it goes, what is in it, how it is kept."""
