"""What `--json` prints: types only."""
