"""One job as the operator knows it: its record, its pods, how they ended.  Pure."""
