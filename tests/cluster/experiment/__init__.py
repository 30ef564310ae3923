"""An experiment's pass on the test cluster, in real time: real API server, scheduler and controllers, nodes in name.

`python -m tests.cluster.experiment` (`make experiments-real`) plays passes and keeps them where `experiments` tells of
them.  `bodies` turns a scenario into objects, `ours` and `of_2017` are the arms, `playing` is one pass, `load` measures
what the machine had left for it.
"""
