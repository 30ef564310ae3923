"""Gang starts: `gang_starter` creates, gates and un-gates all pods of a job together.

`dry_run` checks with the API server first, `gang_pods` counts existing pods, `start_backoff` decides which starts have
failed and how long their jobs pause.
"""
