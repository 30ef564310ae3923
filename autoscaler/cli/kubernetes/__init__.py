"""A Kubernetes cluster as a place for the command line, through the user's kubeconfig and with the user's rights.

`cluster_place` is the adapter.  `kubeconfig` finds the cluster and the namespace, `object_reader`, `object_watch` and
`object_writer` call the API server, `cluster_snapshot` makes the planner's view, `name_completion` lists names for
the shell.  `describe_job`, `cluster_tables` and `cluster_events` format objects, and are pure.  `edl` uses the user's
rights alone; it makes no decision and writes no status.
"""
