"""Trainers that do no work in a job's status: what the planner may take or replace, for those who plan without the
operator (`edl plan`, `edl why`, `edl what-if`).  Pure.
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import Raw as RawRead
from autoscaler.clusters.kubernetes.objects.fields import parts, text, to_time, unix_s
from autoscaler.domain import IdleTrainer, PodName

MOST_IDLE: Final = 100  # of a job, in its status and out of one


def idle_status(idle: tuple[IdleTrainer, ...], *, offset_s: float) -> list[dict[str, Any]]:
    """Return the part of the status.  `offset_s`: the cluster's clock less the time of day."""
    return [
        {"name": one.pod.rpartition("/")[2], "since": to_time(one.since_s - offset_s), "hangs": one.is_hung}
        for one in idle[:MOST_IDLE]
    ]


def idle_in_status(status: RawRead, *, namespace: str) -> tuple[IdleTrainer, ...]:
    """Return what the operator wrote, in Unix time, without entries that name no pod or no instant."""
    found = []
    for one in parts(status, "trainers", "idle")[:MOST_IDLE]:
        name, since_s = text(one, "name"), unix_s(text(one, "since"))
        if name and since_s is not None:
            pod = PodName(f"{namespace}/{name}")
            found.append(IdleTrainer(pod=pod, since_s=since_s, is_hung=one.get("hangs") is True))
    return tuple(found)
