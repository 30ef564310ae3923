"""Excluded jobs: a job whose own planning fails is left out of the plan, so that it stops no other job (A11, ADR 0157).

The phases write on one working copy, so an exception spoils the plan for all jobs. The traceback shows the job at
fault: the job argument, or part of a job, of the innermost frame that has one. Planning begins again without that
job. Its pods stay in the view and keep their capacity; its surplus can be reclaimed as any other, through a stand-in
of plain values (`stand_in`). If planning fails with the stand-in too, its pods are left alone. An exception without
such a frame propagates.

The traceback replaces a boundary around each function of the phases: new functions are covered by being called, and a
plan without faults pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from autoscaler.domain import (
    NOTHING,
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
    JobState,
    MasterSpec,
    Plan,
    Pod,
    PodPhase,
    Reason,
    Reservation,
    Role,
    ServerMove,
    ServerSpec,
    Shape,
    Tier,
    TrainerSpec,
)
from autoscaler.errors import error_text
from autoscaler.planner.working_copy.planned_job import PlannedJob

MOST_FOUND: Final = 16
"""Most faults found in one pass; each repeats the whole plan. A job counts twice if planning fails with its stand-in
too.
"""

NEVER_S: Final = 1e15
"""An instant that never comes: `hold_until_s` of a stand-in, which creates nothing."""

_SIZED: Final = frozenset({PodPhase.PENDING, PodPhase.STARTING, PodPhase.READY})
_OF_A_JOB: Final = (Pod, CreatePod, DeletePod, AdmitGang, Reservation, ServerMove)


def plan_without(
    view: ClusterView,
    known: Mapping[JobName, str],
    unmodelled: Collection[JobName],
    now_s: float,
    decide: Callable[[ClusterView], Plan],
) -> Plan:
    """Return the plan for the jobs with which planning succeeds; `excluded` names the others.

    `known`: jobs to be left out from the start, and why; `unmodelled`: those of them that have no stand-in either.
    Where too many more are found at once nothing is planned in this pass, and the next one begins with them left out.
    Raises what no job explains.
    """
    names = {job.name for job in view.jobs}
    excluded = {
        name: ExcludedJob(job=name, problem=why, is_unmodelled=name in unmodelled)
        for name, why in known.items()
        if name in names
    }
    tries = MOST_FOUND
    while True:
        try:
            decided = decide(exclude(view, excluded.values())) if excluded else decide(view)
        except Exception as error:
            name = find_culprit(error)
            if name is None or name not in names or (name in excluded and excluded[name].is_unmodelled):
                raise
            if name in excluded:
                excluded[name] = replace(excluded[name], is_unmodelled=True, reclaim_error=error)
            else:
                is_unmodelled = name in unmodelled
                found = ExcludedJob(job=name, problem=error_text(error), error=error, is_unmodelled=is_unmodelled)
                excluded[name] = found
            if tries := tries - 1:
                continue
            decided = Plan(revision=view.revision, planned_at_s=now_s, history=view.history, replan_at_s=now_s)
            excluded = {name: replace(one, is_unmodelled=True) for name, one in excluded.items()}
        return _with_excluded(decided, view, excluded.values()) if excluded else decided


def exclude(view: ClusterView, excluded: Collection[ExcludedJob]) -> ClusterView:
    """Return the view without these jobs; a stand-in holds what each has beyond its minimum.

    Their pods stay, and none of them counts as a gang that is starting.
    """
    names = {one.job for one in excluded}
    unbound = (pod for pod in view.pods if pod.job in names and pod.tier is Tier.CORE and pod.node is None)
    modelled = {one.job for one in excluded if not one.is_unmodelled}
    pods_by_job: dict[JobName, list[Pod]] = {name: [] for name in modelled}
    for pod in view.pods:
        if pod.job in pods_by_job:
            pods_by_job[pod.job].append(pod)
    found = (stand_in(job, pods_by_job[job.name]) for job in view.jobs if job.name in modelled)
    stand_ins = [job for job in found if job is not None]
    return view.evolve(
        gone_jobs=names - {job.name for job in stand_ins},
        jobs=stand_ins,
        pods=[replace(pod, tier=Tier.SURPLUS) for pod in unbound],
    )


def stand_in(job: Job, pods: Sequence[Pod]) -> Job | None:
    """Return a job of plain values that has this job's pods, wants no more, and gives its surplus.

    Returns None if there is no surplus. A job with which planning fails must hold no more than others could (A11).
    """
    trainers = [pod for pod in pods if pod.role is Role.TRAINER and pod.phase in _SIZED]
    servers = [pod for pod in pods if pod.role is Role.SERVER and pod.phase in _SIZED]
    count = len(servers)
    sizes = tuple(size for size in job.trainer.sizes if size <= len(trainers))
    if job.state is not JobState.ACTIVE or len(trainers) <= job.trainer.min_replicas:
        return None
    return Job(
        name=job.name,
        namespace=job.namespace,
        priority=job.priority,
        priority_class=job.priority_class,
        weight=job.weight,
        grace_s=job.grace_s,
        hold_until_s=NEVER_S,
        trainer=TrainerSpec(
            shape=trainers[0].shape,
            min_replicas=job.trainer.min_replicas,
            max_replicas=sizes[-1] if sizes else len(trainers),
            step=job.trainer.step,
            powers_of_two=job.trainer.powers_of_two,
            sizes=sizes,
            per_node=job.trainer.per_node,
        ),
        servers=ServerSpec(shape=servers[0].shape, min_replicas=count, max_replicas=count) if servers else None,
        master=MasterSpec(shape=Shape(requests=NOTHING), replicas=0),
    )


def find_culprit(error: BaseException) -> JobName | None:
    """Return the job that was being planned when this was raised; None if the traceback shows none."""
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
    """Yield the jobs among these values, then the jobs that they belong to."""
    values = tuple(values)
    for value in values:
        job = getattr(value, "spec", None) if isinstance(value, PlannedJob) else value  # None: it is only being made
        if isinstance(job, Job):
            yield job.name
    for value in values:
        if isinstance(value, _OF_A_JOB) and value.job is not None:
            yield value.job


def _with_excluded(decided: Plan, view: ClusterView, excluded: Collection[ExcludedJob]) -> Plan:
    why = {one.job: one.problem for one in excluded}
    jobs = [job for job in view.jobs if job.name in why]
    sizes = {one.job: one for one in decided.decisions if one.job in why}
    decisions = [one for one in decided.decisions if one.job not in why]
    decisions += [_excluded(job, view, why[job.name], sizes.get(job.name)) for job in jobs]
    return replace(
        decided,
        actions=tuple(one for one in decided.actions if one.job not in why or isinstance(one, DeletePod)),
        decisions=tuple(sorted(decisions, key=lambda one: one.job)),
        history=_with_resizes_of(decided.history, view.history, why),
        excluded=tuple(sorted(excluded, key=lambda one: one.job)),
    )


def _with_resizes_of(history: History, before: History, names: Collection[JobName]) -> History:
    """Return the history with these jobs' last resizes, so that their windows are kept."""
    mine = [entry for entry in before.resizes if entry.job in names]
    others = [entry for entry in history.resizes if entry.job not in names]
    return replace(history, resizes=tuple(sorted([*others, *mine], key=lambda entry: entry.job)))


def _excluded(job: Job, view: ClusterView, why: str, decided: Decision | None) -> Decision:
    """Return the decision about an excluded job, from its numbers alone.

    `decided`: the decision about its stand-in.
    """
    roles = [pod.role for pod in view.pods if pod.job == job.name and pod.phase in _SIZED]
    now, servers = roles.count(Role.TRAINER), roles.count(Role.SERVER)
    target = now if decided is None else min(now, decided.target)
    becomes = "keeps its size" if target == now else f"shrinks from {now} to {target}: other pods need the capacity"
    return Decision(
        job=job.name,
        now=now,
        target=target,
        min=job.trainer.min_replicas,
        max=job.trainer.max_replicas,
        servers=servers,
        servers_target=servers,
        reason=Reason.EXCLUDED,
        cause=None if decided is None or target == now else decided.cause,
        bottleneck=Bottleneck.PLANNING_FAILED,
        message=f"planning this job failed, so it {becomes} ({why}); EDL retries, other jobs are not affected",
    )
