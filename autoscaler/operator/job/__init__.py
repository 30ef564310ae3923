"""State of one job in the operator: record, pods, terminations.  Pure."""
