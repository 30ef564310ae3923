"""Who meets a scenario: the static arm, the algorithm of 2017, and our loop in both modes of reclaim.

Arms are thin drivers over the simulated cluster: `stage` sets up what all of them meet, `static`, `edl2017` and `ours`
act on it, `playing` runs one pass and hands back what came of it.
"""
