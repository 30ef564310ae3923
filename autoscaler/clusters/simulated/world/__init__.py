"""State of the simulated cluster: nodes, pods, virtual time, how long things take, and a record of what happened."""
