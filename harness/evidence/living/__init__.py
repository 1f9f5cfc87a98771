"""What was seen of processes that run."""
