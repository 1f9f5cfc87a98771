"""What runs on the other side: standard library only, Python 3.9 and newer. Sent as text, never installed there."""
