"""The Kubernetes adapter (`kubernetes_cluster`) of the port `autoscaler.cluster_port.Cluster` (ADR 0150, ADR 0222).

From the bottom up: `api` talks to an API server, and `memory_api` is one in memory; `objects` has names, labels and
fields; `parsing` turns raw objects into the domain and `builders` the domain into raw objects; `cache` keeps objects
fresh; `cluster_view` derives the planner's view; `writes` changes pods and `gangs` starts jobs.
"""
