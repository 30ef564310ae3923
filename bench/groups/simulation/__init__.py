"""A group of any size in virtual time, decided by the product's own cores.

`cluster_model` has the parameters, `virtual_clock` the time, `simulated_master` the master of a group,
`simulated_member` a trainer, `simulated_group` their collectives and the faults; `run` gives a `SimulatedRun`.
"""
