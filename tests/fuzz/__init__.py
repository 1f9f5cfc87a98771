"""Every reader of what somebody else has written, given what nobody should have written."""
