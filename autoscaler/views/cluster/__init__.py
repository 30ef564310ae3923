"""Who has the cluster: nodes, pods, owners and web."""
