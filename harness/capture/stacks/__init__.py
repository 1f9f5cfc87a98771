"""The stacks of a process, by the best tool that manages: one ladder, and one that stops nothing."""
