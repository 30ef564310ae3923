"""The local cluster behind the port of the planner's loop: its jobs, its Deployments, how pods are made."""
