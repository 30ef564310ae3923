"""Leader election: the Lease and the decisions about it."""
