"""A cluster of virtual nodes on this machine: capacity is accounting, a pod is an operating system process.

`cluster` is the adapter of the port `autoscaler.cluster_port.Cluster`; `warden` starts and reaps the processes,
`lives` is the pure story of a job, `scheduling` the pure placement of web pods, `run` puts a whole run together (etcd,
loop, recorder, control socket).
"""
