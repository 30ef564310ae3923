"""Experiments: what the system of 2017 measured, drawn again and beaten, and what it never measured.

`scenarios` are data, `arms` meet them on the simulated cluster, `measuring` and `bounds` say what came of it, `running`
keeps results, `reporting` tells them.  Start at `__main__`.  `demo` is a play of its own, on real processes.
"""
