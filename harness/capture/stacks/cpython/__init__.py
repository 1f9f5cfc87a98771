"""CPython in the memory of another process: frames, objects, the GIL. Stops nothing."""
