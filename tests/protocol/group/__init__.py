"""The protocol of groups, explored: the master's core and the trainers' cores in one small job (rules 63 to 96)."""
