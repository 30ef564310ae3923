"""Passes on a real control plane: `recording` is the stored result, `measurement` computes its metrics.

`tests.cluster.experiment` runs such a pass, on the nodes of the test cluster, which run no containers;
`experiments.reporting.real_page` reports it.
"""
