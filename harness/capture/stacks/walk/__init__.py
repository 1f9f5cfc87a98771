"""Our own walk along native frames: registers, frame tables, what no call returns to."""
