"""Commands that look: which processes of which hosts are meant, and how they are asked."""
