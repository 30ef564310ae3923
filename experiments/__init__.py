"""Experiments: reproduction of the measurements published in 2017, and new ones.

`scenarios` are data; `arms` run them on the simulated cluster; `measuring` and `bounds` compute metrics and upper
bounds; `running` keeps results; `reporting` writes the report.  Start at `__main__`.  `demo` runs real processes.
"""
