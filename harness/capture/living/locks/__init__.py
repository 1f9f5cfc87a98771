"""Which locks threads hold and want."""
