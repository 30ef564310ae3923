"""Systematic perturbation of the autoscaler (promise A9): every fault ends in the state of a run without faults.

`scenario` is the day that each run goes through, `world` the rest of the cluster, `composition` the autoscaler, `plan`
the faults of each run, `invariants` what holds after each step, `final_state` what is compared.
`python -m tests.perturb` runs all of it.
"""
