"""Throughput of a job over its size: a model, its fit to observed sizes, and the knee of the curve; pure (ADR 0265).

`curve` is the model and what the planner asks of it, `observations` the few points that are kept of a job, `fit` how a
curve comes from points.  Not here: how points come from a master's status (`jobs.throughput_watch`), and who may grow,
which the planner decides.
"""

from autoscaler.throughput.curve import CurveShape, FittedCurve, knee_of, marginal_gain

__all__ = ["CurveShape", "FittedCurve", "knee_of", "marginal_gain"]
