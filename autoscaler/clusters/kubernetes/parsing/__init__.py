"""Parsing of raw Kubernetes objects into the domain: pure functions, one module per kind.

Parsing never raises on what the API server accepts.  A pod with something that this version does not understand is
`is_modelled=False`, and such a requirement is one that no node meets.  `training_jobs` is the exception: a TrainingJob
stored under another definition may hold what EDL refuses, and raises InvalidSpecError with the field's path.
`builders` is the other direction.
"""
