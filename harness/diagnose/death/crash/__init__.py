"""One crash: the address, the instruction, who is to blame."""
