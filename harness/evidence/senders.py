"""What harness calls itself as the sender of a signal. No msgspec: the supervisor is light."""

ON_STALL_TERM = "harness run --on-stall term"
