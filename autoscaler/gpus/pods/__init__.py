"""Pods of a device: the kubelet's allocations, and the pods of the processes on a device.

`device_ids` and `cgroup_paths` are pure; `pod_resources` asks the kubelet's socket, `process_pods` reads /proc and the
names of log folders; `node_owners` puts both together.  None of them needs a right of the API server.
"""
