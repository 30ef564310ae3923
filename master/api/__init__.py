"""The published contract between a job's master and everybody else; `autoscaler` and `trainer_sdk` import nothing more.

`positions` is the vocabulary (what has been trained), `identities` the names that fence (terms, lineages, tokens),
`messages` what travels on a member's stream, `manifest` what a checkpoint says of itself, `codec` the wire form.
"""
