"""What a job has of its fair claim, as one number: the job with the lowest claim takes the next step.

Between jobs (the default) that is the weighted dominant share.  Between namespaces (`Fairness.NAMESPACE`) the shares of
a namespace's jobs, unweighted, are added up and compared first; weights then divide what the namespace has among its
own jobs.  So ten small jobs of a team do not take ten shares (ADR 0115).
"""

from __future__ import annotations

from autoscaler.domain import Fairness, JobName
from autoscaler.planner.working_copy.planned_job import JobDraft
from autoscaler.planner.working_copy.working_copy import Draft


class Namespaces:
    """What the jobs of each namespace have in all, brought up to date for the jobs that changed."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._parts: dict[JobName, int] = {}
        self._totals: dict[str, int] = {}
        self._seen = 0
        for job in draft.jobs.values():
            self._count(job)
        self._seen = len(draft.changed_jobs)

    def total(self, namespace: str) -> int:
        """The dominant shares of its jobs, added up."""
        changed = self._draft.changed_jobs
        for job in changed[self._seen :]:
            self._count(job)
        self._seen = len(changed)
        return self._totals[namespace]

    def _count(self, job: JobDraft) -> None:
        part, space = self._draft.share(job) * job.job.weight, job.job.namespace
        self._totals[space] = self._totals.get(space, 0) + part - self._parts.get(job.job.name, 0)
        self._parts[job.job.name] = part


def claim_of(draft: Draft, job: JobDraft) -> int:
    """Return how much the job has, in a unit in which all claims of a plan compare."""
    return before_share(draft, job) + draft.share(job)


def before_share(draft: Draft, job: JobDraft) -> int:
    """Return the part of a claim that comes before the job's own share: its namespace's; 0 between jobs."""
    if draft.policy.fairness is Fairness.JOB:
        return 0
    return namespaces_of(draft).total(job.job.namespace) * above_shares(draft)


def is_entitled(draft: Draft, poor: JobDraft, more: int, rich: JobDraft, less: int) -> bool:
    """Whether with `more` trainers the poor job still has less than the rich one with `less` fewer (A4)."""
    after, left = draft.share(poor, more=more), draft.share(rich, more=-less)
    if draft.policy.fairness is Fairness.JOB or poor.job.namespace == rich.job.namespace:
        return after < left
    spaces = namespaces_of(draft)
    gained = (after - draft.share(poor)) * poor.job.weight
    lost = (draft.share(rich) - left) * rich.job.weight
    return spaces.total(poor.job.namespace) + gained < spaces.total(rich.job.namespace) - lost


def namespaces_of(draft: Draft) -> Namespaces:
    """Return the plan's sums, made when first asked."""
    if not isinstance(draft.namespaces, Namespaces):
        draft.namespaces = Namespaces(draft)
    return draft.namespaces


def above_shares(draft: Draft) -> int:
    """A factor by which the smallest difference between namespaces outweighs any share of a job."""
    return 4 * draft.unit
