"""Published contract between a job's master and all other programs; nothing else of it may be imported.

`positions` is the vocabulary (what has been trained), `identities` the names that fence (terms, lineages, tokens),
`messages` what travels on a member's stream, `master_status` a job's status, `checkpoints` the checkpoint folder,
`wire` gRPC and protobuf, `host` what processes of one machine share (sockets, file ownership, log lines, HTTP pages).
"""
