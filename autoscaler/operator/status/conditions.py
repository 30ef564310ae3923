"""The conditions of a TrainingJob, by Kubernetes' convention.  Pure.

A condition's `lastTransitionTime` moves only with its status.  Reasons are one word; messages name the bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import parts, text, to_time

LONGEST_MESSAGE: Final = 1024


class ConditionType(StrEnum):
    ADMITTED = "Admitted"  # its gang has capacity
    READY = "Ready"  # all core pods are ready
    SCALED = "Scaled"  # its size is the target size
    PROGRESSING = "Progressing"  # samples are being trained
    CHECKPOINTS_CURRENT = "CheckpointsCurrent"  # training is committed to checkpoints
    DEGRADED = "Degraded"  # it has started and runs with less than its minimum
    IDLE = "Idle"  # some of its trainers do no work
    COMPLETED = "Completed"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


def true_condition(kind: ConditionType, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=ConditionStatus.TRUE, reason=reason, message=message)


def false_condition(kind: ConditionType, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=ConditionStatus.FALSE, reason=reason, message=message)


def unknown_condition(kind: ConditionType, reason: str, message: str = "") -> Condition:
    return Condition(type=kind, status=ConditionStatus.UNKNOWN, reason=reason, message=message)


def write_conditions(
    conditions: Iterable[Condition], before: RawRead, *, generation: int, now_unix_s: float
) -> list[Raw]:
    """Return conditions as the API has them.  `before`: the stored status, whose transition times are kept."""
    standing = {text(one, "type"): one for one in parts({"status": before}, "status", "conditions")}
    return [_write(one, standing.get(one.type), generation, now_unix_s) for one in conditions]


def _write(condition: Condition, before: RawRead | None, generation: int, now_unix_s: float) -> Raw:
    since = text(before, "lastTransitionTime") if before is not None else ""
    has_turned = before is None or before.get("status") != condition.status or not since
    return {
        "type": condition.type.value,
        "status": condition.status.value,
        "reason": condition.reason,
        "message": condition.message[:LONGEST_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": to_time(now_unix_s) if has_turned else since,
    }
