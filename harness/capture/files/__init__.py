"""Native files and what is installed: ELF, Mach-O and PE, who links to whom, whose a file is."""
