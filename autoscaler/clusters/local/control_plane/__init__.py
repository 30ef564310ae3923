"""A Kubernetes control plane and its kubelet in one process, around the API server in memory (ADR 0224).

    memory_api (the objects) <- deployment_controller, pod_scheduler, kubelet, garbage collection <- control_plane
    memory_api <- api_socket <- api_wire -> socket_client (other terminals)

`control_plane` lets these controllers react to every change; `pod_commands` turns a pod's container into a command
line, and `pod_status` writes what became of it.  EDL's own part is the operator (`autoscaler.operator`): it sees an API
server, and none of what stands here.
"""
