"""`edl run`: the operator's term over the control plane of this machine, with its folder, etcd and records.

Start at `local_run`.  `submission` turns the files into objects, and `run_term` is the operator.  The control plane and
its processes are `clusters.local`; what the terminal shows is `cli.local`.
"""
