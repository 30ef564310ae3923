"""What each condition of a job says now.  Pure; `conditions` writes them, `status` puts the rest beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from autoscaler.clusters.kubernetes.parsing.pod_objects import unschedulable_reason
from autoscaler.domain import Bottleneck, Role
from autoscaler.jobs.lifecycle import Ending, Stage
from autoscaler.jobs.training_health import Heard, Verdict, Why, committing, training
from autoscaler.operator.job.job_pods import is_ready
from autoscaler.operator.status.conditions import Condition, Kind, Truth, is_false, is_true, is_unknown
from autoscaler.operator.status.job_report import reason_of
from autoscaler.operator.status.status_inputs import Seen

_NOT_TRAINING: Final = frozenset({Why.PROBLEM, Why.MASTER_SILENT, Why.NO_LEADER, Why.MALFORMED_ANSWER})
"""Of Progressing: a matter more urgent than its size."""

TOO_MUCH_IN_ETCD: Final = "it took more of etcd, which all jobs share, than is its due"
"""How the message begins of a job that was given up for what it stored in etcd."""

_NOT_ASKED: Final = frozenset({"NotActive", "Waiting"})
_SERVING_AGAIN: Final = frozenset({Why.WAITING_FOR_SERVERS, Why.RESTORING})


def judge(seen: Seen) -> tuple[Condition, ...]:
    """All conditions, in the order in which people read them."""
    return (
        _admitted(seen),
        _ready(seen),
        _scaled(seen),
        _of_master(seen, Kind.PROGRESSING, training),
        _of_master(seen, Kind.CHECKPOINTS_CURRENT, committing),
        _degraded(seen),
        _ended(seen, Kind.COMPLETED, Ending.COMPLETED),
        _ended(seen, Kind.FAILED, Ending.FAILED),
        _suspended(seen),
    )


def chief_reason(told: Sequence[Condition]) -> str:
    """The reason that says most, for a column of a table: how it ended, else what keeps it from training, from its
    minimum, from checkpoints, from its next size."""
    by_kind = {one.kind: one for one in told}
    for kind in (Kind.FAILED, Kind.COMPLETED, Kind.SUSPENDED):
        if kind in by_kind and by_kind[kind].truth is Truth.TRUE:
            return by_kind[kind].reason if kind is Kind.FAILED else kind.value
    chief = next((one for one in _by_weight(by_kind) if one is not None), None)
    return chief.reason if chief is not None else ""


def _by_weight(by_kind: Mapping[Kind, Condition]) -> Iterator[Condition | None]:
    progressing, degraded, saved = map(by_kind.get, (Kind.PROGRESSING, Kind.DEGRADED, Kind.CHECKPOINTS_CURRENT))
    admitted = by_kind.get(Kind.ADMITTED)
    yield admitted if admitted is not None and admitted.truth is Truth.FALSE else None
    yield progressing if progressing is not None and progressing.reason in _NOT_TRAINING else None
    yield degraded if degraded is not None and degraded.truth is Truth.TRUE else None
    yield progressing if progressing is not None and progressing.reason in _SERVING_AGAIN else None
    ready = by_kind.get(Kind.READY)
    has_room = admitted is not None and admitted.truth is Truth.TRUE
    yield ready if has_room and ready is not None and ready.truth is Truth.FALSE else None
    is_behind = saved is not None and saved.truth is Truth.FALSE and saved.reason not in _NOT_ASKED
    yield saved if is_behind else None
    yield by_kind.get(Kind.SCALED)
    yield admitted


def has_started(seen: Seen) -> bool:
    """Whether its gang stands: the master comes when the rest is bound."""
    return seen.has_master


def _admitted(seen: Seen) -> Condition:
    life, decision = seen.record.life, seen.report.decision
    if life.ending is not None:
        return is_false(Kind.ADMITTED, "Over", "the job has ended")
    if life.stage in {Stage.SUSPENDING, Stage.SUSPENDED}:
        return is_false(Kind.ADMITTED, "Suspended", "spec.runPolicy.suspend is true")
    if has_started(seen):
        return is_true(Kind.ADMITTED, "Started", "all that it cannot run without has room")
    if seen.priority is None:
        name = seen.job.spec.priority_class
        return is_false(Kind.ADMITTED, "PriorityClassMissing", f"spec.priorityClassName: there is no class {name!r}")
    for reason, message in seen.problems.items():
        return is_false(Kind.ADMITTED, reason, message)
    if seen.is_observed:
        why = decision.message if decision is not None else ""
        return is_false(Kind.ADMITTED, "Observed", f"spec.mode is observe: EDL writes nothing. {why}".strip())
    if stuck := _stuck(seen):
        return is_false(Kind.ADMITTED, "Unschedulable", f"kube-scheduler: {stuck}")
    if (lost := _last_start(seen)) is not None:
        return lost
    if decision is None:
        return is_unknown(Kind.ADMITTED, "NotPlanned", "no plan has been made with it yet")
    return is_false(Kind.ADMITTED, decision.bottleneck.value, decision.message)


def _stuck(seen: Seen) -> str:
    """Why kube-scheduler finds no node for a pod of the job, where that is not for want of room."""
    pods = (raw for role in seen.there for raw in seen.there[role])
    return next(filter(None, map(unschedulable_reason, pods)), "")


def _last_start(seen: Seen) -> Condition | None:
    """Why the last start came to nothing, if that is what keeps the job waiting."""
    race, refused = seen.race, seen.report.refusal
    if race.refusal:  # gates lifted or not
        return is_false(Kind.ADMITTED, reason_of(race.refusal, is_final=True) or "Refused", race.refusal)
    if refused is not None:  # the last try; one that only lost its room was done first, which clears this
        return is_false(Kind.ADMITTED, refused.reason, refused.message)
    if race.unschedulable_reason:
        return is_false(
            Kind.ADMITTED, "Unschedulable", f"kube-scheduler, {race.lost} times in a row: {race.unschedulable_reason}"
        )
    if race.is_taken:
        told = f"{race.lost} times in a row others took the room that was proved for it"
        return is_false(Kind.ADMITTED, "RoomTaken", told)
    return None


def _ready(seen: Seen) -> Condition:
    spec = seen.job.spec
    wanted = {Role.TRAINER: spec.trainer.replicas.minimum, Role.MASTER: 1}
    if spec.server is not None:
        wanted[Role.SERVER] = spec.server.replicas.minimum
    there = {role: sum(is_ready(raw) for raw in seen.there[role]) for role in wanted}
    missing = [f"{there[role]} of {count} {role.value}s" for role, count in wanted.items() if there[role] < count]
    if missing:
        return is_false(Kind.READY, "NotReady", f"ready: {', '.join(missing)}")
    return is_true(Kind.READY, "AllReady", f"{there[Role.TRAINER]} trainers are ready")


def _scaled(seen: Seen) -> Condition:
    decision = seen.report.decision
    if seen.record.life.stage is not Stage.ACTIVE or decision is None:
        return is_unknown(Kind.SCALED, "NotActive", "no size is wanted for it now")
    if seen.is_contested:
        told = "a HorizontalPodAutoscaler is set upon this job: EDL leaves its count alone; delete one of the two"
        return is_false(Kind.SCALED, "ConflictingAutoscaler", told)
    there = len(seen.there[Role.TRAINER])
    notices = [decision.notice, *(f"server {pod} stays yet: {why}" for pod, why in seen.parting.items() if why)]
    message = "; ".join(filter(None, [f"{there} of {decision.target} trainers: {decision.message}", *notices]))
    if seen.is_observed:
        return is_false(Kind.SCALED, "Observed", f"EDL would want {message}")
    for reason, told in seen.problems.items():
        return is_false(Kind.SCALED, reason, told)
    if there < decision.target and seen.report.refusal is not None:
        return is_false(Kind.SCALED, seen.report.refusal.reason, seen.report.refusal.message)
    if stuck := _stuck(seen) or (seen.race.unschedulable_reason if there < decision.target else ""):
        return is_false(Kind.SCALED, "Unschedulable", f"{message}; kube-scheduler: {stuck}")
    if there < decision.target:
        return is_false(Kind.SCALED, "Growing", message)
    if seen.heard.progress is not None and seen.heard.progress.moves_problem:
        return is_false(Kind.SCALED, "BucketsLate", f"training goes on; {seen.heard.progress.moves_problem}")
    if there > decision.target or seen.parting:
        return is_false(Kind.SCALED, "Shrinking", message)
    return is_true(Kind.SCALED, decision.bottleneck.value, message)


def _of_master(seen: Seen, kind: Kind, judge_heard: Callable[[Heard], Verdict]) -> Condition:
    """What only its master knows."""
    life = seen.record.life
    if life.ending is not None or life.stage in {Stage.SUSPENDING, Stage.SUSPENDED}:
        return is_false(kind, "NotActive", "the job has ended, or is suspended")
    if not has_started(seen):
        return is_false(kind, "Waiting", "it has not started: it waits for room for its minimum")
    verdict = judge_heard(seen.heard)
    tell = {True: is_true, False: is_false, None: is_unknown}[verdict.holds]
    return tell(kind, verdict.why.value, verdict.message)


def _degraded(seen: Seen) -> Condition:
    life, decision = seen.record.life, seen.report.decision
    if life.stage is not Stage.ACTIVE or not has_started(seen):
        return is_false(Kind.DEGRADED, "NotActive" if life.stage is not Stage.ACTIVE else "NotStarted")
    minimum = seen.job.spec.trainer.replicas.minimum
    there = len(seen.there[Role.TRAINER])
    if there < minimum or (decision is not None and decision.is_degraded):
        why = decision.message if decision is not None else "they are being replaced"
        reason = decision.bottleneck.value if decision is not None else "BelowMinimum"
        if decision is not None and decision.bottleneck in {Bottleneck.MAX, Bottleneck.PINNED}:
            reason = "BelowMinimum"
        if there >= minimum and (server := seen.job.spec.server) is not None:
            servers = len(seen.there[Role.SERVER])
            told = f"{servers} parameter servers of at least {server.replicas.minimum}: they are being replaced"
            return is_true(Kind.DEGRADED, reason, told)
        return is_true(Kind.DEGRADED, reason, f"{there} trainers of at least {minimum}: {why}")
    return is_false(Kind.DEGRADED, "AsWanted")


def _ended(seen: Seen, kind: Kind, ending: Ending) -> Condition:
    life = seen.record.life
    if life.ending is not ending:
        return is_false(kind, "NotSo")
    if seen.there[Role.TRAINER]:
        return is_false(kind, "Stopping", life.message)
    reason = {Ending.COMPLETED: "AllTrained", Ending.FAILED: failure_reason(life.message)}.get(ending, ending.value)
    return is_true(kind, reason, life.message)


def failure_reason(message: str) -> str:
    """One word for why a job was given up."""
    if "backoffLimit" in message:
        return "BackoffLimitExceeded"
    if "activeDeadlineSeconds" in message:
        return "DeadlineExceeded"
    if message.startswith(TOO_MUCH_IN_ETCD):
        return "EtcdBoundExceeded"
    return "GivenUp"


def _suspended(seen: Seen) -> Condition:
    match seen.record.life.stage:
        case Stage.SUSPENDED:
            return is_true(Kind.SUSPENDED, "Suspended", "spec.runPolicy.suspend is true; all pods leave")
        case Stage.SUSPENDING:
            return is_false(Kind.SUSPENDED, "Suspending", "trainers finish their batches, then servers leave")
        case _:
            return is_false(Kind.SUSPENDED, "NotSo")
