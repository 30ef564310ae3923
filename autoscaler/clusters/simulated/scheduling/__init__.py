"""kube-scheduler in virtual time: its queue, filters and scores, choice of a node, and preemption."""
