"""What the source says of a line: loops around it, locks taken, what it tends. Inferences."""
