"""What the suites share: processes, faults, waiting, commands, certificates.  No tests lie here (ADR 0230)."""
