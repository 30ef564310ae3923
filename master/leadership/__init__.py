"""Leadership of a job: decisions on lease and campaign (`election_state`), carried out by `election`."""
