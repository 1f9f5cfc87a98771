"""Living processes: states, waits, locks, counters, what was not flushed."""
