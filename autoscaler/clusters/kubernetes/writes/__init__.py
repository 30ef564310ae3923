"""Single writes to the cluster: `pod_writer` creates, un-gates and deletes pods.

Checks right before a write: `capacity_check` (does the pod still fit), `object_ownership` (is it this job's) and
`create_backoff` (has the API server lately refused such a pod).
"""
