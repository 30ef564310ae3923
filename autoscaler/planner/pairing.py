"""Who may have a step of whom: the poor in the order in which they would drink, the rich from the richest down.

Shares alone are asked here (A4).  Whether it may happen now is `clearance`, which trainers would leave `step_down`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from autoscaler.domain import Fairness, JobName, Role
from autoscaler.planner.draft import Draft
from autoscaler.planner.elastic import servers_held, servers_wanted
from autoscaler.planner.fairness import claim_of, is_entitled
from autoscaler.planner.fit import fits_an_empty_node
from autoscaler.planner.job_draft import JobDraft
from autoscaler.planner.payoff import gain_of
from autoscaler.planner.share import is_starved
from autoscaler.planner.step_down import last_step_of, share_below
from autoscaler.planner.thirst import is_held_back, share_after_step, step_of, thirst


def takers(draft: Draft) -> list[JobDraft]:
    """Return the jobs that lack nothing but room, in the order in which they would drink: poorest first."""
    stirred = draft.stirred
    poor = [
        job
        for shape, jobs in draft.drinkers.items()
        if fits_an_empty_node(draft, shape)
        for job in jobs
        if job.job.name not in stirred
    ]
    poor += [
        job
        for job in draft.stirred_jobs()
        if fits_an_empty_node(draft, job.shapes[Role.TRAINER]) and is_starved(draft, job)
    ]
    if draft.now_s < draft.burst_until_s:
        poor = [job for job in poor if not is_held_back(draft, job)]
    if draft.quotas is not None:
        poor = [job for job in poor if not draft.quota_lack(job, [Role.TRAINER] * step_of(job), now=False)]
    return sorted(poor, key=lambda job: thirst(draft, job))


def one_of_each_kind(draft: Draft, takers: Sequence[JobDraft]) -> Iterator[JobDraft]:
    """Yield the first of each kind: what the poorest of a kind does not get, no other of it gets."""
    seen: set[object] = set()
    for taker in takers:
        if (kind := kind_of(draft, taker)) not in seen:
            seen.add(kind)
            yield taker


def kind_of(draft: Draft, taker: JobDraft) -> object:
    """Return what a step of the job depends on, its share apart: what must find room, for whom, and what it brings."""
    spec, size, step = taker.job, taker.size, step_of(taker)
    is_elastic = draft.view.capabilities.servers_elastic
    servers = max(0, servers_wanted(draft, taker, size + step) - servers_held(taker)) if is_elastic else 0
    gain = gain_of(draft.policy, spec, size, size + step) if draft.policy.payoff_s else 0.0
    places = (taker.shapes[Role.TRAINER], spec.trainer.per_node, step, servers and taker.shapes[Role.SERVER], servers)
    return (*places, spec.priority, spec.namespace, taker.rates, gain)


def how_many_richer(draft: Draft, taker: JobDraft, ranked: Sequence[tuple[int, int, str]]) -> int:
    """Return how many come before all those from whom the taker may have nothing: see `givers`."""
    if draft.policy.fairness is Fairness.JOB:
        return bisect_left(ranked, (taker.job.priority, -share_after_step(draft, taker), ""))
    return bisect_left(ranked, (taker.job.priority + 1, -inf, ""))


def claims(draft: Draft) -> Mapping[JobName, int]:
    """Return what each job has of its fair claim; between jobs that stands in its thirst already."""
    if draft.policy.fairness is Fairness.JOB:
        return {name: thirst(draft, job)[1] for name, job in draft.jobs.items()}
    return {name: claim_of(draft, job) for name, job in draft.jobs.items()}


def givers(
    draft: Draft, taker: JobDraft, helpers: Sequence[JobDraft], shares: Mapping[JobName, int]
) -> Iterator[JobDraft]:
    """Yield those of the helpers, lower classes first, then the largest share, that may have to give a step."""
    after, priority = share_after_step(draft, taker), taker.job.priority
    between_jobs = draft.policy.fairness is Fairness.JOB
    for job in helpers:
        is_lower = job.job.priority < priority
        if job.job.priority > priority or (not is_lower and between_jobs and shares[job.job.name] <= after):
            return  # in this order nobody who follows has more
        if job is taker:
            continue
        if is_lower or (after < share_below(draft, job) if between_jobs else is_poorer(draft, taker, job)):
            yield job


def is_poorer(draft: Draft, taker: JobDraft, giver: JobDraft) -> bool:
    """Whether the taker still has less once each of the two has moved by a step."""
    return is_entitled(draft, taker, step_of(taker), giver, last_step_of(giver))
