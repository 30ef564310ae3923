"""Cluster of virtual nodes on this machine: capacity is accounting, a pod is an operating system process.

run            a whole `edl run`: etcd, planner's loop, samples, and the socket where other terminals ask
cluster        the adapter of the port `autoscaler.cluster_port`; lives of jobs, Deployments
pods           one pod from its creation until its processes are gone
control_plane  an API server in memory with controllers and kubelet, on which `edl run` is to stand (ADR 0224)
run_files      what a run writes: folder, events, locks on checkpoint folders, messages on the control socket
machine        processes, ports, GPUs, logs: nothing there knows jobs
"""
