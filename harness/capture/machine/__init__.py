"""What this machine is, allows and tells: control groups, kernel log, trust, refusals."""
