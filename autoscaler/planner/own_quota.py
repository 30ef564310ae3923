"""A gang whose namespace has used up its quota with its own surplus: that surplus is taken back, as rooms are (P4).

A job that waits for its minimum makes no progress; surplus that its own namespace holds is no reason to wait.  Other
namespaces' surplus uses another quota, and minimums stay.  Next: `gangs`.
"""

from __future__ import annotations

from autoscaler.domain import Cause, Role
from autoscaler.planner.draft import Draft
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.rank import full_rank
from autoscaler.planner.supply import price_of


def free_quota(draft: Draft, job: JobDraft, roles: list[Role], spare_priority: int | None) -> bool:
    """Have surplus of the job's namespace leave until these pods are within its quotas.

    The cheapest jobs give first, a step at a time; `spare_priority`: jobs of this priority and above give nothing.
    False, with the draft spoiled, if all of it is too little.  Work on a trial.
    """
    asked, rank = draft.newcomers(job, roles), full_rank(job.job.priority)
    while draft.quotas is not None and (excess := draft.quotas.excess(job, asked, now=False)) is not None:
        givers = {
            other.job.name: pods
            for other in draft.jobs.values()
            if other.job.namespace == job.job.namespace
            and (spare_priority is None or other.job.priority < spare_priority)
            and other.spare
            and other.trainer_amounts[excess.column] > 0
            and (pods := [pod for pod in draft.offers(other, rank).pods if excess.counts(other, pod)])
        }
        if not givers:
            return False
        giver = min((draft.jobs[name] for name in givers), key=lambda other: (*price_of(draft, other), other.job.name))
        draft.shrink(giver, givers[giver.job.name][:1], Cause.GANG, beneficiary=job.job.name)
    return True
