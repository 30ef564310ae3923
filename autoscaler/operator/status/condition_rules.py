"""Rules of a job's conditions: which status, reason and message each of them has now.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoscaler.clusters.kubernetes.parsing.pod_objects import unschedulable_reason
from autoscaler.domain import Bottleneck, Role
from autoscaler.jobs.lifecycle import CompletionReason, JobEnding, LifeStage
from autoscaler.jobs.standstill import awaited_text
from autoscaler.jobs.training_health import (
    HealthReason,
    HealthVerdict,
    MasterReport,
    checkpoint_verdict,
    training_verdict,
)
from autoscaler.operator.job.job_pods import is_ready, names_of, waiting_reasons
from autoscaler.operator.status.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    false_condition,
    true_condition,
    unknown_condition,
)
from autoscaler.operator.status.status_inputs import StatusInputs, reason_of

_NOT_TRAINING: Final = frozenset(
    {HealthReason.PROBLEM, HealthReason.MASTER_UNREACHABLE, HealthReason.NO_LEADER, HealthReason.MALFORMED_ANSWER}
    | {HealthReason.NO_TRAINER}
)
"""Reasons of Progressing that take precedence over the reason for the size."""

_SHOWN_COMPLETIONS: Final = frozenset({CompletionReason.NO_MODEL_KEPT, CompletionReason.SCRIPT_FAILED})
_NO_VERDICT: Final = frozenset({"NotActive", "Waiting"})
_SERVING_AGAIN: Final = frozenset({HealthReason.WAITING_FOR_SERVERS, HealthReason.RESTORING})


def conditions_of(inputs: StatusInputs) -> tuple[Condition, ...]:
    """Return all conditions, in the order in which people read them."""
    return (
        _admitted(inputs),
        _ready(inputs),
        _scaled(inputs),
        _progressing(inputs),
        _master_condition(inputs, ConditionType.CHECKPOINTS_CURRENT, checkpoint_verdict),
        _degraded(inputs),
        _idle(inputs),
        _ended(inputs, ConditionType.COMPLETED, JobEnding.COMPLETED),
        _ended(inputs, ConditionType.FAILED, JobEnding.FAILED),
        _suspended(inputs),
    )


def main_reason(conditions: Sequence[Condition]) -> str:
    """Most important reason, for a table column: the ending, else what keeps the job from it, most urgent first.

    The order: from starting, from training, from its minimum, from serving again, from readiness, from its first
    batch, from checkpoints, from its next size.
    """
    by_kind = {one.type: one for one in conditions}
    for kind in (ConditionType.FAILED, ConditionType.COMPLETED, ConditionType.SUSPENDED):
        if kind in by_kind and by_kind[kind].status is ConditionStatus.TRUE:
            reason = by_kind[kind].reason
            return reason if kind is ConditionType.FAILED or reason in _SHOWN_COMPLETIONS else kind.value
    chief = next((one for one in _by_urgency(by_kind) if one is not None), None)
    return chief.reason if chief is not None else ""


def _by_urgency(by_kind: Mapping[ConditionType, Condition]) -> Iterator[Condition | None]:
    progressing, degraded, checkpoints = map(
        by_kind.get, (ConditionType.PROGRESSING, ConditionType.DEGRADED, ConditionType.CHECKPOINTS_CURRENT)
    )
    admitted = by_kind.get(ConditionType.ADMITTED)
    yield admitted if admitted is not None and admitted.status is ConditionStatus.FALSE else None
    yield progressing if progressing is not None and progressing.reason in _NOT_TRAINING else None
    yield degraded if degraded is not None and degraded.status is ConditionStatus.TRUE else None
    yield progressing if progressing is not None and progressing.reason in _SERVING_AGAIN else None
    ready = by_kind.get(ConditionType.READY)
    has_capacity = admitted is not None and admitted.status is ConditionStatus.TRUE
    yield ready if has_capacity and ready is not None and ready.status is ConditionStatus.FALSE else None
    yield progressing if progressing is not None and progressing.reason == HealthReason.STARTING else None
    if checkpoints is not None and checkpoints.status is ConditionStatus.FALSE:
        yield checkpoints if checkpoints.reason not in _NO_VERDICT else None
    yield by_kind.get(ConditionType.SCALED)
    yield admitted


def has_started(inputs: StatusInputs) -> bool:
    """True if the gang has started: the master exists, which is created after all other pods are bound."""
    return inputs.has_master


def _admitted(inputs: StatusInputs) -> Condition:
    life, decision = inputs.record.life, inputs.plan_report.decision
    if life.ending is not None:
        return false_condition(ConditionType.ADMITTED, "Over", "the job has ended")
    if life.stage in {LifeStage.SUSPENDING, LifeStage.SUSPENDED}:
        return false_condition(ConditionType.ADMITTED, "Suspended", "spec.runPolicy.suspend is true")
    if has_started(inputs):
        return true_condition(ConditionType.ADMITTED, "Started", "all core pods have capacity")
    if inputs.priority is None:
        name = inputs.job.spec.priority_class
        return false_condition(
            ConditionType.ADMITTED, "PriorityClassMissing", f"spec.priorityClassName: there is no class {name!r}"
        )
    for reason, message in inputs.problems.items():
        return false_condition(ConditionType.ADMITTED, reason, message)
    if inputs.is_observed:
        why = decision.message if decision is not None else ""
        return false_condition(
            ConditionType.ADMITTED, "Observed", f"spec.mode is observe: EDL writes nothing. {why}".strip()
        )
    if stuck := _stuck(inputs):
        return false_condition(ConditionType.ADMITTED, "Unschedulable", f"kube-scheduler: {stuck}")
    if (lost := _last_start(inputs)) is not None:
        return lost
    if decision is None:
        return unknown_condition(ConditionType.ADMITTED, "NotPlanned", "the job has not been planned yet")
    return false_condition(ConditionType.ADMITTED, decision.bottleneck.value, decision.bottleneck_message)


def _stuck(inputs: StatusInputs) -> str:
    """Return why kube-scheduler finds no node for a pod of the job, if capacity is not the reason."""
    pods = (raw for role in inputs.active_pods for raw in inputs.active_pods[role])
    return next(filter(None, map(unschedulable_reason, pods)), "")


def _last_start(inputs: StatusInputs) -> Condition | None:
    """Condition of a job that waits because its last start failed; None: it did not."""
    race, refused = inputs.start_backoff, inputs.plan_report.refusal
    if race.refusal:  # gates lifted or not
        return false_condition(
            ConditionType.ADMITTED, reason_of(race.refusal, is_final=True) or "Refused", race.refusal
        )
    if refused is not None:  # the last attempt was refused; an attempt that was accepted clears the refusal
        return false_condition(ConditionType.ADMITTED, refused.reason, refused.message)
    if race.unschedulable_reason:
        message = f"kube-scheduler refused {_starts(race.lost_races)}: {race.unschedulable_reason}"
        return false_condition(ConditionType.ADMITTED, "Unschedulable", message)
    if race.is_capacity_taken:
        detail = f"other pods took the capacity that was proved for this job, at {_starts(race.lost_races)}"
        return false_condition(ConditionType.ADMITTED, "CapacityLost", detail)
    return None


def _starts(count: int) -> str:
    return "its last start" if count == 1 else f"its last {count} starts"


def _ready(inputs: StatusInputs) -> Condition:
    spec = inputs.job.spec
    wanted = {Role.TRAINER: spec.trainer.replicas.minimum, Role.MASTER: 1}
    if spec.server is not None:
        wanted[Role.SERVER] = spec.server.replicas.minimum
    there = {role: sum(is_ready(raw) for raw in inputs.active_pods[role]) for role in wanted}
    missing = [f"{there[role]} of {count} {role.value}s" for role, count in wanted.items() if there[role] < count]
    if missing:
        return false_condition(ConditionType.READY, "NotReady", f"ready: {', '.join(missing)}")
    return true_condition(ConditionType.READY, "AllReady", f"{there[Role.TRAINER]} trainers are ready")


def _scaled(inputs: StatusInputs) -> Condition:
    decision = inputs.plan_report.decision
    if inputs.record.life.stage is not LifeStage.ACTIVE or decision is None:
        return unknown_condition(ConditionType.SCALED, "NotActive", "the job has no target size now")
    if inputs.is_contested:
        detail = "a HorizontalPodAutoscaler targets this job, so EDL does not change its size; delete one of the two"
        return false_condition(ConditionType.SCALED, "ConflictingAutoscaler", detail)
    there = len(inputs.active_pods[Role.TRAINER])
    leaving = (f"server {pod} has not left yet: {why}" for pod, why in inputs.draining.items() if why)
    notices = [decision.notice, *leaving]
    size = f"{there} of {decision.target} trainers"
    message = "; ".join(filter(None, [f"{size}: {decision.message}", *notices]))
    if inputs.is_observed:
        detail = f"spec.mode is observe: EDL writes nothing. It would plan {message}"
        return false_condition(ConditionType.SCALED, "Observed", detail)
    for reason, detail in inputs.problems.items():
        return false_condition(ConditionType.SCALED, reason, detail)
    if there < decision.target and inputs.plan_report.refusal is not None:
        return false_condition(
            ConditionType.SCALED, inputs.plan_report.refusal.reason, inputs.plan_report.refusal.message
        )
    if stuck := _stuck(inputs) or (inputs.start_backoff.unschedulable_reason if there < decision.target else ""):
        return false_condition(ConditionType.SCALED, "Unschedulable", f"{message}; kube-scheduler: {stuck}")
    if there < decision.target:
        return false_condition(ConditionType.SCALED, "Growing", message)
    if inputs.master_report.progress is not None and inputs.master_report.progress.moves_problem:
        return false_condition(
            ConditionType.SCALED, "BucketsLate", f"training continues; {inputs.master_report.progress.moves_problem}"
        )
    if there > decision.target or inputs.draining:
        return false_condition(ConditionType.SCALED, "Shrinking", message)
    limit = "; ".join(filter(None, [f"{size}: {decision.bottleneck_message}", *notices]))
    return true_condition(ConditionType.SCALED, decision.bottleneck.value, limit)


def _progressing(inputs: StatusInputs) -> Condition:
    """Return the condition on training; where no trainer takes part, with what is being done about it."""
    found = _master_condition(inputs, ConditionType.PROGRESSING, training_verdict)
    report = inputs.master_report
    is_alone = found.reason == HealthReason.NO_TRAINER or (
        found.reason == HealthReason.STARTING and report.is_start_awaited
    )
    if not is_alone or report.progress is None:
        return found
    pods, stuck = inputs.active_pods[Role.TRAINER], _stuck(inputs)
    awaited = awaited_text(report.progress, names_of(pods), _scaled(inputs).message, waiting_reasons(pods))
    awaited = f"kube-scheduler: {stuck}" if stuck else awaited
    return replace(found, message=f"{found.message}. {awaited}")


def _master_condition(
    inputs: StatusInputs, kind: ConditionType, verdict_of: Callable[[MasterReport], HealthVerdict]
) -> Condition:
    """Return a condition that only the job's master knows."""
    life = inputs.record.life
    if life.ending is not None or life.stage in {LifeStage.SUSPENDING, LifeStage.SUSPENDED}:
        return false_condition(kind, "NotActive", "the job has ended, or is suspended")
    if not has_started(inputs):
        return false_condition(kind, "Waiting", "the job has not started: it waits for capacity for its minimum")
    verdict = verdict_of(inputs.master_report)
    make = {True: true_condition, False: false_condition, None: unknown_condition}[verdict.holds]
    return make(kind, verdict.reason.value, verdict.message)


def _degraded(inputs: StatusInputs) -> Condition:
    life, decision = inputs.record.life, inputs.plan_report.decision
    if life.stage is not LifeStage.ACTIVE or not has_started(inputs):
        return false_condition(
            ConditionType.DEGRADED, "NotActive" if life.stage is not LifeStage.ACTIVE else "NotStarted"
        )
    minimum = inputs.job.spec.trainer.replicas.minimum
    there = len(inputs.active_pods[Role.TRAINER])
    if there < minimum or (decision is not None and decision.is_degraded):
        why = decision.bottleneck_message if decision is not None else "they are being replaced"
        reason = decision.bottleneck.value if decision is not None else "BelowMinimum"
        if decision is not None and decision.bottleneck in {Bottleneck.MAX, Bottleneck.PINNED}:
            reason = "BelowMinimum"
        if there >= minimum and (server := inputs.job.spec.server) is not None:
            servers = len(inputs.active_pods[Role.SERVER])
            detail = f"{servers} parameter servers of at least {server.replicas.minimum}: they are being replaced"
            return true_condition(ConditionType.DEGRADED, reason, detail)
        return true_condition(ConditionType.DEGRADED, reason, f"{there} trainers of at least {minimum}: {why}")
    return false_condition(ConditionType.DEGRADED, "AsExpected")


def _idle(inputs: StatusInputs) -> Condition:
    if inputs.record.life.stage is not LifeStage.ACTIVE or not has_started(inputs):
        return false_condition(ConditionType.IDLE, "NotActive")
    report = inputs.idle_report
    make = true_condition if report.holds else false_condition
    return make(ConditionType.IDLE, report.reason.value, report.message)


def _ended(inputs: StatusInputs, kind: ConditionType, ending: JobEnding) -> Condition:
    life = inputs.record.life
    if life.ending is not ending:
        return false_condition(kind, "NotCompleted" if ending is JobEnding.COMPLETED else "NotFailed")
    if inputs.active_pods[Role.TRAINER]:
        return false_condition(kind, "Stopping", life.message)
    reason = life.failure_reason.value if ending is JobEnding.FAILED else life.completion_reason.value
    return true_condition(kind, reason, life.message)


def _suspended(inputs: StatusInputs) -> Condition:
    match inputs.record.life.stage:
        case LifeStage.SUSPENDED:
            return true_condition(
                ConditionType.SUSPENDED, "Suspended", "spec.runPolicy.suspend is true: no pod of the job stays"
            )
        case LifeStage.SUSPENDING:
            return false_condition(
                ConditionType.SUSPENDED, "Suspending", "trainers finish their batches, then servers are terminated"
            )
        case _:
            return false_condition(ConditionType.SUSPENDED, "NotSuspended")
