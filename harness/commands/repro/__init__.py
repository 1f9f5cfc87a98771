"""`harness repro`: experiments of several arms."""
