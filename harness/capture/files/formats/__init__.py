"""What one native file says about itself: ELF, Mach-O, PE, frame tables, symbol versions."""
