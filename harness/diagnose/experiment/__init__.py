"""What the arms of an experiment say together."""
