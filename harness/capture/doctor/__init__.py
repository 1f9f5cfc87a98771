"""What can be observed on this machine."""
