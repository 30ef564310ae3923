"""The systematic plan of perturbations (promise A9): whatever goes wrong, what stands at the end is the same.

`story` is the day that is lived through, `world` the rest of a cluster, `composition` the autoscaler, `plan` what goes
wrong in which run, `witness` what must hold after each step, `ends` what is compared.  `python -m tests.perturb`.
"""
