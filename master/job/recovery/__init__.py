"""Recovery of the model: from a new master or a lost server to a job that serves (rules 17, 18, 24, 26 to 30).

`model_recovery` drives the stages, `server_quorum` says who is waited for, `rollback` raises the lineage,
`server_restore` has servers load it.
"""
