"""Tasks of an event loop."""
