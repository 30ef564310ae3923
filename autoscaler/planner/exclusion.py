"""A job whose own planning fails is left out of the pass, so that it stops no other job (A11, ADR 0157).  Pure.

The problem: the phases write on one draft, so an exception spoils the pass for all.  Whose it is shows in its
traceback: the innermost function that was given a job, or something of a job's.  The pass begins again without that
job; its pods stay in the view, where they hold their room and are nobody's to take.  What no job explains propagates.

A traceback is read in place of a boundary around each function of the phases: new functions are covered by being
called, and a pass without faults pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from autoscaler.domain import (
    AdmitGang,
    Bottleneck,
    ClusterView,
    CreatePod,
    Decision,
    DeletePod,
    ExcludedJob,
    History,
    Job,
    JobName,
    Plan,
    Pod,
    PodPhase,
    Reason,
    Reservation,
    Role,
    ServerMove,
    Tier,
)
from autoscaler.errors import in_words
from autoscaler.planner.job_draft import JobDraft

MOST_FOUND: Final = 16
"""Jobs found at fault in one pass: each costs another try of the whole, and the loop has more to do than to plan."""

_SIZED: Final = frozenset({PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY})
_OF_A_JOB: Final = (Pod, CreatePod, DeletePod, AdmitGang, Reservation, ServerMove)


def plan_without(
    view: ClusterView, known: Mapping[JobName, str], now_s: float, decide: Callable[[ClusterView], Plan]
) -> Plan:
    """Return the plan for the jobs with which planning succeeds; `excluded` names the others.

    `known`: jobs to be left out from the start, and why.  Where too many more are found at once, nothing is planned in
    this pass, and the next one is to begin with them left out.  Raises what no job explains.
    """
    names = {job.name for job in view.jobs}
    excluded = {name: ExcludedJob(job=name, problem=why) for name, why in known.items() if name in names}
    most = len(excluded) + MOST_FOUND
    while True:
        try:
            decided = decide(leave_out(view, excluded)) if excluded else decide(view)
        except Exception as error:
            name = find_culprit(error)
            if name is None or name in excluded or name not in names:
                raise
            excluded[name] = ExcludedJob(job=name, problem=in_words(error), error=error)
            if len(excluded) < most:
                continue
            decided = Plan(revision=view.revision, planned_at_s=now_s, history=view.history, replan_at_s=now_s)
        return _with_excluded(decided, view, excluded.values()) if excluded else decided


def leave_out(view: ClusterView, names: Collection[JobName]) -> ClusterView:
    """Return the view without these jobs.  Their pods stay, and none of them counts as a gang that is starting."""
    unbound = (pod for pod in view.pods if pod.job in names and pod.tier is Tier.CORE and pod.node is None)
    return view.evolve(gone_jobs=names, pods=[replace(pod, tier=Tier.SURPLUS) for pod in unbound])


def find_culprit(error: BaseException) -> JobName | None:
    """Return the job that was being worked on when this was raised; None: there is none in the traceback."""
    frames: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("autoscaler."):
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    for depth, frame in enumerate(reversed(frames)):
        code = frame.f_code
        given = code.co_varnames if depth == 0 else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        found = [frame.f_locals[name] for name in given if name in frame.f_locals]
        if (name := next(_jobs_in(found), None)) is not None:
            return name
    return None


def _jobs_in(values: Iterable[Any]) -> Iterator[JobName]:
    """Yield the jobs that these values are, then those that they belong to."""
    values = tuple(values)
    for value in values:
        job = getattr(value, "job", None) if isinstance(value, JobDraft) else value  # None: it is only being made
        if isinstance(job, Job):
            yield job.name
    for value in values:
        if isinstance(value, _OF_A_JOB) and value.job is not None:
            yield value.job


def _with_excluded(decided: Plan, view: ClusterView, excluded: Collection[ExcludedJob]) -> Plan:
    why = {one.job: one.problem for one in excluded}
    jobs = [job for job in view.jobs if job.name in why]
    decisions = [*decided.decisions, *(_unchanged(job, view, why[job.name]) for job in jobs)]
    return replace(
        decided,
        decisions=tuple(sorted(decisions, key=lambda one: one.job)),
        history=_kept(decided.history, view.history, why),
        excluded=tuple(sorted(excluded, key=lambda one: one.job)),
    )


def _kept(history: History, before: History, names: Collection[JobName]) -> History:
    """Return the memory with when these jobs were resized last: their windows go on."""
    mine = [entry for entry in before.resizes if entry.job in names]
    others = [entry for entry in history.resizes if entry.job not in names]
    return replace(history, resizes=tuple(sorted([*others, *mine], key=lambda entry: entry.job)))


def _unchanged(job: Job, view: ClusterView, why: str) -> Decision:
    """Return that the job stays as it stands.  Nothing of the job is asked but its numbers."""
    standing = [pod.role for pod in view.pods if pod.job == job.name and pod.phase in _SIZED]
    now, servers = standing.count(Role.TRAINER), standing.count(Role.SERVER)
    return Decision(
        job=job.name,
        now=now,
        target=now,
        min=job.trainer.min_replicas,
        max=job.trainer.max_replicas,
        servers=servers,
        servers_target=servers,
        reason=Reason.EXCLUDED,
        bottleneck=Bottleneck.PLANNING_FAILED,
        message=f"it could not be planned and stays as it is ({why}); tried again, others go on",
    )
