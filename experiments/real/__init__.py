"""A pass on a real control plane: what it leaves (`recording`), read as any other pass (`taking`), and what the
simulator says of the same one (`counterpart`).

Who plays it, on nodes that run nothing, is `tests.cluster.experiment`: that needs the test cluster.  Telling of it is
`experiments.reporting.real_page`.
"""
