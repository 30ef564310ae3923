"""State of a job's resize in progress, from the status of its TrainingJob."""

from __future__ import annotations

from autoscaler.clusters.kubernetes.objects.fields import Raw, integer, part
from autoscaler.clusters.resize_requests import ResizeState


def parse_resize_state(job: Raw, role: str) -> ResizeState:
    """Return the progress of the job's `trainers` or `servers` towards the present target."""
    status = part(job, "status", role)
    pinned = integer(job, "spec", "parameterServer" if role == "servers" else "trainer", "replicas")
    draining = integer(status, "draining")  # ready; they terminate once their buckets have moved
    present = max(0, integer(status, "ready") - draining)
    is_suspended = part(job, "spec", "runPolicy").get("suspend") is True
    return ResizeState(
        desired=(pinned or integer(status, "target")) if status and not is_suspended else present,
        present=present,
        terminating=integer(status, "leaving") + draining,
        is_suspended=is_suspended,
    )
