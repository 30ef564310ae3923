"""Test harness of all suites: processes, faults, waiting, commands, certificates.  No tests lie here (ADR 0230)."""
