"""A real Kubernetes control plane for tests, on this machine, without containers.

etcd, kube-scheduler, kube-controller-manager and, with TLS and RBAC, kube-apiserver run on loopback; KWOK plays the
nodes, so that hundreds of them cost nothing and run nothing.  `families` pins what is built, `build` builds it once a
user, `control_plane` starts and stops it, `kwok_nodes` makes nodes and pods that start, fail and leave as told,
`accounts` makes the kubeconfig of a ServiceAccount.  `conftest` offers all that to tests, `playground` to people.
"""
