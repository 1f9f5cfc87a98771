"""Files of arrays (.npy, .npz): what is in them, read from their headers only. Never imports numpy."""
