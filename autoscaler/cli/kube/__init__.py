"""A Kubernetes cluster as a place for the command line, through the user's kubeconfig and with the user's rights.

`place` is the door; `contexts` says which cluster and namespace are meant, `asking` reads, `changes` writes, `moments`
makes what the planner sees, `offering` completes names.  `columns`, `telling` and `events` draw, and are pure.
Everything that `edl` does here the user may do with kubectl too: nothing is decided, no status is written.
"""
