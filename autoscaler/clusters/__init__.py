"""Adapters of the port `autoscaler.cluster_port.Cluster`, one package each, and the kinds of objects."""
