"""Helpers for processes on one machine: clock, file limits, file ownership, sockets, signals, log lines, HTTP pages."""
