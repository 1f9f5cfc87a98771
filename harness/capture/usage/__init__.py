"""Memory, threads and descriptors over time: what is sampled while a process runs."""
