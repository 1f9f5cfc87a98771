"""What moves in a process, as numbers that rise: bytes, files, children, beats."""
