"""Threads that wait for what can never come."""
