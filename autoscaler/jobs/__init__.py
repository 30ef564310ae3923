"""Lifecycle and progress of a training job, for every cluster: `lifecycle` decides, `master_connections` polls
masters.
"""
