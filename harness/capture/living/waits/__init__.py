"""What threads wait for: system calls, descriptors, peers, and what could interrupt a wait."""
