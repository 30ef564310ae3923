"""What would be decided for jobs that are only observed (`mode: observe`), if EDL acted on them.

The plan that is carried out leaves them as they stand: no other job gives them room or waits for theirs.  What their
status and events tell comes from a second plan, of the same moment, of which nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoscaler.domain import ClusterView, Job, JobName, Policy
from autoscaler.loop import Step
from autoscaler.planner import Memo, plan


class Observed:
    """Plans with them, whenever there are any."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._memo = Memo()

    def told(self, step: Step, view: ClusterView, jobs: Mapping[JobName, Job], now_s: float) -> Step:
        """The step with decisions for `jobs` as they are in this mapping; all else is what was done."""
        if not jobs:
            return step
        would = plan(view.evolve(jobs=jobs.values()), self._policy, now_s, memo=self._memo)
        found = {decision.job: decision for decision in would.decisions if decision.job in jobs}
        decisions = tuple(found.get(decision.job, decision) for decision in step.plan.decisions)
        return replace(step, plan=replace(step.plan, decisions=decisions))
