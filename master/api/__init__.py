"""The published contract between a job's master and everybody else; others import nothing more of the master.

`positions` is the vocabulary (what has been trained), `identities` the names that fence (terms, lineages, tokens),
`messages` what travels on a member's stream, `master_status` a job's status, `checkpoints` the checkpoint folder,
`wire` gRPC and protobuf, `host` what processes of one machine share (sockets, file ownership, log lines, HTTP pages).
"""
