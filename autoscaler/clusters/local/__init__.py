"""Cluster of virtual nodes on this machine: capacity is accounting, a pod is an operating system process.

control_plane  an API server in memory with controllers, scheduler and kubelet, and the socket where it is asked
run_files      what a run writes: folder, events, locks on checkpoint folders
machine        processes, ports, GPUs, logs: nothing there knows jobs
"""
