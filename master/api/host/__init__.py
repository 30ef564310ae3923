"""What processes of one machine share: clock, file limits, file ownership, sockets, signals, log lines, HTTP pages."""
