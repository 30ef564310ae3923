"""Inputs of a job's status for tests: pods, decisions, progress and what earlier operators have written."""

from dataclasses import replace

from autoscaler.clusters.kubernetes.gangs.start_backoff import StartBackoff
from autoscaler.domain import Bottleneck, Decision, Reason
from autoscaler.jobs.lifecycle import Life
from autoscaler.jobs.progress import JobProgress
from autoscaler.operator.job.job_record import JobRecord, master_report_of
from autoscaler.operator.status.job_status import status_of
from autoscaler.operator.status.status_inputs import PlanReport, StatusInputs
from master.api.master_status import JobPhase
from tests.unit.clusters.kubernetes.raw_objects import UID, condition, kube_job, raw_pod
from tests.unit.operator.bench import JOB

OFFSET_S = -1_700_000_000.0


NOW_S = 1_000.0


PROGRESS = JobProgress(
    phase=JobPhase.TRAINING, total=200, done=50, committed=40, epochs=2, lineage=1, checkpoint_age_s=30.0
)


OWNER = {"kind": "TrainingJob", "apiVersion": "edl.dev/v1alpha1", "uid": UID, "controller": True, "name": "digits"}


def decision(now=2, target=3, **fields):
    return Decision(
        **{
            "job": JOB,
            "now": now,
            "target": target,
            "min": 2,
            "max": 8,
            "servers": 0,
            "servers_target": 0,
            "reason": Reason.GROWN,
            "bottleneck": Bottleneck.FAIR_SHARE,
            "message": "others have less",
        }
        | fields
    )


def pod(number, role="trainer", tier="core", *, is_ready=True):
    status = {"conditions": [condition("Ready", "True" if is_ready else "False")]}
    labels = {"edl.dev/job": "digits", "edl.dev/role": role, "edl.dev/tier": tier, "edl.dev/ordinal": str(number)}
    return raw_pod(f"digits-{role}-{number}", node="n1", labels=labels, owner=OWNER, status=status)


def saved(record):
    """As the operator keeps it when its master has answered."""
    age_s = None if record.progress is None else record.progress.checkpoint_age_s
    return record if age_s is None else replace(record, checkpoint_at_s=record.progress_at_s - age_s)


def seen(*pods, life=None, **fields):
    job, pods = kube_job(), fields.pop("pods", pods)
    record = JobRecord(job=job, life=life or Life(policy=job.spec.run_policy, started_at_s=900.0))
    values = {
        "record": saved(replace(record, **fields.pop("record", {}))),
        "plan_report": PlanReport(decision=decision()),
        "start_backoff": StartBackoff(),
        "pods": pods,
        "has_master": bool(pods),
        "previous": {},
        "priority": 0,
        "problems": {},
    } | fields
    return StatusInputs(**{"master_report": master_report_of(values["record"], NOW_S, OFFSET_S)} | values)


def status(what):
    return status_of(what, now_s=NOW_S, offset_s=OFFSET_S)


def told(what):
    return {one["type"]: (one["status"], one["reason"]) for one in status(what)["conditions"]}


RUNNING = (pod(0), pod(1), pod(2, tier="surplus", is_ready=False), pod(0, "master"))
