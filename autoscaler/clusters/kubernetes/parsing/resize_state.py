"""State of a job's resize in progress, from the status of its TrainingJob."""

from __future__ import annotations

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, whole
from autoscaler.clusters.resize_requests import ResizeState


def parse_resize_state(job: Raw, role: str) -> ResizeState:
    """Return the progress of the job's `trainers` or `servers` towards the present target."""
    status = part(job, "status", role)
    pinned = whole(job, "spec", "parameterServer" if role == "servers" else "trainer", "replicas")
    draining = whole(status, "draining")  # ready; they terminate once their buckets have moved
    present = max(0, whole(status, "ready") - draining)
    is_suspended = part(job, "spec", "runPolicy").get("suspend") is True
    return ResizeState(
        desired=(pinned or whole(status, "target")) if status and not is_suspended else present,
        present=present,
        terminating=whole(status, "leaving") + draining,
        is_suspended=is_suspended,
    )
