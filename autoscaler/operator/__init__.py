"""The EDL operator on a Kubernetes cluster: leader election, lifecycle of TrainingJobs, status, events and metrics.

`clusters.kubernetes` reads and writes the cluster; `loop` and `planner` decide sizes, as everywhere.  Start at
`leader_term`; `process.main` is the program around it.
"""
