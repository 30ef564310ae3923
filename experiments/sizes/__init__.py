"""Sizes that pay: does EDL find the knee of a job's throughput, and what does stopping there bring (ADR 0268)?

`knees` asks the first on synthetic curves, `trace_pass` the second: jobs after a published trace on the simulated
cluster, under several arms (`pollux` is one of them), beside the bound of `bound`. `python -m experiments.sizes` runs
both and writes the report.
"""
