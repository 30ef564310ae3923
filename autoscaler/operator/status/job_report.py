"""What the planner's passes have said of one job: its decision, the write that was refused last, its changes of size.

Pure values; `report` collects them, `status` shows them.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain import Bottleneck, Decision, Reason
from autoscaler.operator.status.resizes import ResizeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRefusal:
    """The last write for a job that the API server did not want.  `reason`: one word."""

    at_s: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What is known of one job."""

    decision: Decision | None = None
    refusal: WriteRefusal | None = None
    resizes: tuple[ResizeRecord, ...] = ()


def is_news(decision: Decision) -> bool:
    """Whether people should read of it: a size that stays, and a job that has none any more, are not."""
    if decision.reason is Reason.EXCLUDED:
        return False  # told as an error of the job (`fault_isolation`)
    return decision.reason is not Reason.KEPT and decision.bottleneck is not Bottleneck.NOT_ACTIVE


def reason_of(refusal: str, *, is_final: bool = False) -> str:
    """One word for what the API server had against a write; empty for what is part of normal life (room just taken).

    `is_final`: the same would be refused again.
    """
    for words, reason in (
        ("exceeded quota", "Quota"),
        ("failed quota", "Quota"),
        ("LimitRange", "LimitRange"),
        ("usage per", "LimitRange"),
        ("violates PodSecurity", "PodSecurity"),
        ("because it is being terminated", "NamespaceTerminating"),
        (" is invalid: ", "PodInvalid"),
        ("strict decoding error", "PodInvalid"),  # a field that this server does not know
        ("belongs to somebody else", "NameTaken"),
        ("stands with the label", "NameTaken"),
        ("no PriorityClass", "PriorityClassMissing"),
        ("cannot create", "Forbidden"),
        ("cannot delete", "Forbidden"),
    ):
        if words in refusal:
            return reason
    is_of_job = "create pods " in refusal or "create deployments " in refusal
    return "PodRefused" if is_final and is_of_job else ""  # a webhook, an account that is not there, ...
