"""What living processes do: the table of the living and its rules."""
