"""What is installed, in a file, on a machine: OpenMP, arrays, facilities."""
