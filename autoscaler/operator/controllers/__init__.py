"""Controllers of all jobs: they read the cluster, poll masters and write objects.

They share state through `store`.
"""
