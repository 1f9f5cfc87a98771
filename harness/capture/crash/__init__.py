"""A process that stands still in its own death: the crash link, and the snapshot."""
