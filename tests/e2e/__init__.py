"""Real containers on two real nodes: what the KWOK nodes of `tests/cluster` cannot show.  `make e2e` runs it.

Everything lives in namespaces of its own (processes, mounts, network, host name), entered before pytest starts; the
machine's firewall, routes, settings and /var stay as they are, and nothing outlives the run.

- `__main__`: checks, builds, enters the namespaces, runs pytest there.
- `debian`, `dockerfiles`, `steps`, `trees`, `images`, `oci`: images out of Debian's packages and this repository's
  wheels.
- `node_files`, `first_process`, `nodes`, `network`, `cgroups`: a node: containerd, kubelet and kube-proxy.
- `real_cluster`: control plane, nodes and DNS together; `conftest` has the fixtures.

What needs no container is tested in `tests/cluster`.
"""
