"""Which operator may write: the Lease and the decisions about it."""
