"""Status of a TrainingJob, from the inputs of one instant.  Pure.

The fields are those of charts/edl/files/trainingjobs.yaml.  Instants in are the cluster's clock, out the time of day;
`offset_s` lies between.  `job.recovery` is the only reader of a stored status.
"""

from __future__ import annotations

from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import part, parts, text, to_time
from autoscaler.clusters.kubernetes.objects.labels import JOB, ROLE, TIER
from autoscaler.domain import Bottleneck, Role, Tier
from autoscaler.errors import InvalidSpecError
from autoscaler.jobs.lifecycle import JobEnding, LifeStage
from autoscaler.manifests.api_types import ReplicaBounds
from autoscaler.operator.job.idle_status import idle_status
from autoscaler.operator.job.job_pods import has_ended, is_leaving, is_ready, names_of, role_of, uid_of
from autoscaler.operator.job.job_record import idle_trainers_of, is_ratio_measured
from autoscaler.operator.job.pod_termination import termination_of
from autoscaler.operator.job.progress_status import progress_status
from autoscaler.operator.job.throughput_status import remaining_status, throughput_status
from autoscaler.operator.status import conditions
from autoscaler.operator.status.condition_rules import conditions_of, main_reason
from autoscaler.operator.status.conditions import ConditionType
from autoscaler.operator.status.status_inputs import MOST, ResizeRecord, StatusInputs

MOST_NAMES: Final = 100
SHORTEST_STEP_S: Final = 1.0


def status_of(inputs: StatusInputs, *, now_s: float, offset_s: float) -> Raw:
    """Return the status; values that are not known are left out."""
    record, job = inputs.record, inputs.job
    found = conditions_of(inputs)
    status: Raw = {
        "observedGeneration": job.generation,
        "conditions": conditions.write_conditions(
            found, inputs.previous, generation=job.generation, now_unix_s=now_s - offset_s
        ),
        "reason": main_reason(found),
        "selector": f"{JOB}={job.name},{ROLE}={Role.TRAINER.value}",
        "failures": _failures(inputs),
        "trainers": _trainers(inputs, offset_s),
        "master": _master(inputs),
        "resizes": _resizes(inputs, offset_s),
    }
    if job.spec.server is not None:
        status["servers"] = _servers(inputs, job.spec.server.replicas)
    if inputs.priority is not None:
        status["priority"] = inputs.priority
    if inputs.plan_report.decision is not None:
        status["share"] = f"{inputs.plan_report.decision.share:.3f}"
    if inputs.plan_report.queue_position is not None and record.life.stage is LifeStage.ACTIVE:
        status["queuePosition"] = inputs.plan_report.queue_position
    if record.progress is not None:
        status["progress"] = progress_status(record, offset_s) | _remaining(inputs)
    elif (standing_progress := inputs.previous.get("progress")) is not None:
        status["progress"] = standing_progress  # of an earlier master, until this one answers
    decision = inputs.plan_report.decision
    is_full = decision is not None and decision.bottleneck is Bottleneck.EFFICIENCY
    if throughput := throughput_status(record.throughput, decision.target if decision and is_full else None):
        status["throughput"] = throughput
    instants = {field: at_s for field, at_s in _instants(inputs).items() if at_s is not None}
    return status | {field: _kept_time(inputs.previous, field, at_s - offset_s) for field, at_s in instants.items()}


def unreadable_status(error: InvalidSpecError, before: RawRead, *, generation: int, now_unix_s: float) -> Raw:
    """Return the status of a job that EDL cannot read: why, with the field's path, and nothing that was known before.

    Its start time is kept, because the CRD's rules forbid template changes while it is set.
    """
    admitted = (conditions.false_condition(ConditionType.ADMITTED, "InvalidSpec", str(error)),)
    return {
        "observedGeneration": generation,
        "conditions": conditions.write_conditions(admitted, before, generation=generation, now_unix_s=now_unix_s),
        "reason": "InvalidSpec",
        **({"startTime": before["startTime"]} if "startTime" in before else {}),
    }


def internal_error_status(problem: str, before: RawRead, *, generation: int, now_unix_s: float) -> Raw:
    """Return the status of a job whose status EDL fails to make: the stored status, with `problem` in its condition
    Scaled (A11).
    """
    scaled = conditions.false_condition(ConditionType.SCALED, "InternalError", problem)
    condition = conditions.write_conditions((scaled,), before, generation=generation, now_unix_s=now_unix_s)
    others = [
        one for one in parts({"status": before}, "status", "conditions") if text(one, "type") != ConditionType.SCALED
    ]
    return {**before, "conditions": [*others, *condition], "reason": "InternalError"}


def is_over(inputs: StatusInputs) -> bool:
    """True if the status may show the job's ending: every trainer is terminating or gone (ADR 0152)."""
    return inputs.record.life.ending in {JobEnding.COMPLETED, JobEnding.FAILED} and not inputs.active_pods[Role.TRAINER]


def differs_only_in_progress(one: RawRead, other: RawRead) -> bool:
    """True if two statuses differ only in progress: of training, of moves of buckets, and in the queue."""
    return _less_progress(one) == _less_progress(other)


def _less_progress(status: RawRead) -> RawRead:
    rest = {name: value for name, value in status.items() if name not in {"progress", "queuePosition"}}
    servers = {name: value for name, value in part(status, "servers").items() if name != "movingBuckets"}
    return rest | {"servers": servers}


# ---- parts ----------------------------------------------------------------------------------------------------------


def _failures(inputs: StatusInputs) -> int:
    """Failures in a row, without those whose pods still exist: the next leader would count these again (ADR 0152)."""
    life, record = inputs.record.life, inputs.record
    if life.advances != life.advances_at_failure:
        return 0
    proofs = [
        raw
        for raw in inputs.pods
        if uid_of(raw) in record.handled
        and role_of(raw) is Role.TRAINER
        and not is_leaving(raw)
        and (end := termination_of(raw, record.deleted_by_edl)) is not None
        and end.is_failure
    ]
    return max(0, life.failures - len(proofs))


def _trainers(inputs: StatusInputs, offset_s: float) -> Raw:
    sizes, decision = inputs.job.spec.trainer.replicas, inputs.plan_report.decision
    there = inputs.active_pods[Role.TRAINER]
    surplus = sum(text(raw, "metadata", "labels", TIER) == Tier.SURPLUS.value for raw in there)
    idle = idle_status(idle_trainers_of(inputs.record), offset_s=offset_s)
    return {
        "ready": sum(is_ready(raw) for raw in there),
        "target": decision.target if decision is not None and inputs.record.life.stage is LifeStage.ACTIVE else 0,
        "min": sizes.minimum,
        "max": sizes.maximum,
        "core": len(there) - surplus,
        "surplus": surplus,
        "leaving": len(_leaving(inputs, Role.TRAINER)),
        "names": names_of(there)[:MOST_NAMES],
        **({"idle": idle} if idle else {}),
    }


def _servers(inputs: StatusInputs, sizes: ReplicaBounds) -> Raw:
    there, decision, progress = inputs.active_pods[Role.SERVER], inputs.plan_report.decision, inputs.record.progress
    is_active = inputs.record.life.stage is LifeStage.ACTIVE
    servers: Raw = {
        "ready": sum(is_ready(raw) for raw in there),
        "target": decision.servers_target if decision is not None and is_active else 0,
        "min": sizes.minimum,
        "max": sizes.maximum,
        "leaving": len(_leaving(inputs, Role.SERVER)),
        "draining": len(inputs.draining),
        "names": names_of(there)[:MOST_NAMES],
    }
    if is_ratio_measured(inputs.job):
        servers["trainersPerServer"] = inputs.record.ratio.trainers_per_server
    if progress is not None:
        servers |= {"wanted": progress.servers_wanted, "movingBuckets": progress.moving}
    if progress is not None and progress.copies > 1 and progress.lineage and there:  # a server owns buckets
        servers |= {"copies": progress.copies, "singleCopies": progress.single_copy_buckets}
    return servers


def _instants(inputs: StatusInputs) -> dict[str, float | None]:
    """Instants of the job's life by their fields, on the cluster's clock; None: the status has no such field."""
    record, life = inputs.record, inputs.record.life
    has_begun = bool(inputs.pods) or life.ending is not None or "startTime" in inputs.previous
    return {
        "standstillSince": record.standstill_since_s if inputs.master_report.standstill_since else None,
        "waitingSince": record.waiting_since_s,
        "startTime": life.started_at_s if life.stage is not LifeStage.SUSPENDED and has_begun else None,
        "completionTime": life.ended_at_s if is_over(inputs) else None,
    }


def _leaving(inputs: StatusInputs, role: Role) -> list[RawRead]:
    return [raw for raw in inputs.pods if role_of(raw) is role and is_leaving(raw) and not has_ended(raw)]


def _master(inputs: StatusInputs) -> Raw:
    there = inputs.active_pods[Role.MASTER]
    master: Raw = {"ready": sum(is_ready(raw) for raw in there)}
    if any(text(raw, "metadata", "name") == inputs.record.leader for raw in there):
        master["leader"] = inputs.record.leader
    return master


def _remaining(inputs: StatusInputs) -> Raw:
    record, decision = inputs.record, inputs.plan_report.decision
    if record.progress is None or decision is None or record.life.stage is not LifeStage.ACTIVE:
        return {}
    remaining = remaining_status(record.progress, record.throughput.curve, decision)
    return {"remaining": remaining} if remaining else {}


def _resizes(inputs: StatusInputs, offset_s: float) -> list[RawRead]:
    """Resizes in the status, including those that earlier leaders wrote."""
    own = [_resize(one, offset_s) for one in inputs.plan_report.resizes]
    return [*own, *inputs.record.resizes_before][:MOST]


def _resize(resize: ResizeRecord, offset_s: float) -> Raw:
    return {
        "time": to_time(resize.at_s - offset_s),
        "from": resize.before,
        "to": resize.after,
        "role": resize.role.value,
        "cause": resize.cause[:64],
        "by": resize.by.value,
        "message": resize.message[:1024],
    }


def _kept_time(before: RawRead, field: str, unix_s: float) -> str:
    """Return the instant as text; the standing text stays if it differs by one second of rounding."""
    standing_text, wanted = text(before, field), to_time(unix_s)
    return standing_text if standing_text and _differs_little(standing_text, unix_s) else wanted


def _differs_little(standing_text: str, unix_s: float) -> bool:
    return standing_text in {to_time(unix_s - SHORTEST_STEP_S), to_time(unix_s), to_time(unix_s + SHORTEST_STEP_S)}
