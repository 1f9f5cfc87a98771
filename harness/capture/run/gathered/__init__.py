"""What is gathered once a command has ended: evidence, environment, cores, what was left."""
