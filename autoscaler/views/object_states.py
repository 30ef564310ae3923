"""States of objects in one word, and messages that the operator wrote for people."""

from __future__ import annotations

from autoscaler.clusters.kubernetes.objects.fields import Raw, condition_of, part, parts, text
from autoscaler.clusters.kubernetes.objects.labels import DRAIN
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of

SHOWN_CONDITIONS = (
    "Admitted",
    "Ready",
    "Scaled",
    "Progressing",
    "CheckpointsCurrent",
    "Degraded",
    "Idle",
    "Completed",
    "Failed",
    "Suspended",
)
"""Conditions of a job that people are told of, in this order."""


def pod_state(pod: Raw) -> str:
    """State of a pod as kubectl shows it: a reason that holds it back counts before its phase."""
    if text(pod, "metadata", "deletionTimestamp"):
        return "Terminating"
    if gates_of(pod):
        return "SchedulingGated"
    for container in (*parts(pod, "status", "initContainerStatuses"), *parts(pod, "status", "containerStatuses")):
        if reason := text(container, "state", "waiting", "reason"):
            return reason
    return text(pod, "status", "reason") or text(pod, "status", "phase") or "Unknown"


def node_state(node: Raw) -> str:
    """State of a node: if it is ready, and if it is closed to new pods."""
    states = ["Ready" if condition_of(node, "Ready").get("status") == "True" else "NotReady"]
    if part(node, "spec").get("unschedulable") is True:
        states.append("SchedulingDisabled")
    if DRAIN in part(node, "metadata", "labels"):
        states.append("Draining")
    return ",".join(states)


def job_message(job: Raw) -> str:
    """Message of the condition that the job's REASON is from, else of Scaled."""
    reason = text(job, "status", "reason")
    found = [
        one for one in parts(job, "status", "conditions") if text(one, "reason") == reason and text(one, "message")
    ]
    found += [condition_of(job, "Scaled")]
    return text(found[0], "message")


def holding_conditions(job: Raw) -> tuple[str, ...]:
    """Conditions of a job that hold, of those that people are told of."""
    return tuple(one for one in SHOWN_CONDITIONS if condition_of(job, one).get("status") == "True")
