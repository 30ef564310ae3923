"""EDL on a Kubernetes cluster: who leads, the life of each TrainingJob, what users and dashboards read.

`clusters.kubernetes` reads and writes the cluster; `loop` and `planner` decide sizes, as everywhere.  Start at
`leader_term`; `process.main` is the program around it.
"""
