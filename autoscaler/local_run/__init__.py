"""`edl run`: the operator's term over the control plane of this machine, with its folder, etcd and records."""
