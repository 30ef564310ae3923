"""Arms of an experiment: fixed sizes, the algorithm of 2017, and EDL's loop in both modes of reclaim.

Arms are thin drivers over the simulated cluster: `pass_setup` makes the cluster and the scenario's events; `static`,
`edl2017` and `ours` act on it.
"""
