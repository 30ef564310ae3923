"""Requests of users to resize a job (`edl scale`): which sizes are allowed, and what becomes of a resize in progress.

The newest number replaces the one before at once, whether that was carried out or not.  Pods that terminate and buckets
that move finish first, and new pods wait for them (ADR 0315).  A suspended job keeps the number until it is resumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeState:
    """One role of a job before the request: pods desired, present, terminating, and buckets that move."""

    desired: int
    present: int
    terminating: int = 0
    moving_buckets: int = 0
    is_suspended: bool = False  # the job: its pods terminate whatever is desired

    @property
    def is_settled(self) -> bool:
        """True if the resize before is complete."""
        return self.present == self.desired and not self.terminating and not self.moving_buckets

    def describe(self, count: int) -> str:
        """Return what becomes of the resize before, now that `count` is set (0: EDL decides); empty if complete."""
        if self.is_suspended:
            return "the job is suspended: the size applies once it is resumed"
        if self.is_settled:
            return ""
        if count == self.desired:
            return f"the resize to {self.desired} continues: {self._state()}"
        ends = (
            "; pods and buckets that are already moving finish first" if self.terminating or self.moving_buckets else ""
        )
        return f"replaces the resize to {self.desired}: {self._state()}{ends}"

    def _state(self) -> str:
        counts = [f"{self.present} of {self.desired} present"]
        counts += [f"{self.terminating} terminating"] if self.terminating else []
        counts += [f"{_counted(self.moving_buckets, 'bucket')} moving"] if self.moving_buckets else []
        return ", ".join(counts)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def find_size_problem(name: str, job: Job, role: str, count: int) -> str:
    """Return why a job cannot have this many `trainers` or `servers`; empty if it can.  0 unpins the size."""
    if role == "servers":
        return _find_server_problem(name, job, count)
    if count and not job.trainer.is_allowed(count):
        sizes = f"{job.trainer.sizes_text} trainers"
        return f"spec.trainer.replicas: tj/{name} may have {sizes}, or 0 for EDL's choice; not {count}"
    return ""


def _find_server_problem(name: str, job: Job, count: int) -> str:
    servers = job.servers
    if servers is None:
        return f"spec.parameterServer: tj/{name} has no parameter servers, and none can be added later"
    if count and not servers.is_allowed(count):
        bounds = f"{servers.min_replicas} to {servers.max_replicas} servers"
        return f"spec.parameterServer.replicas: tj/{name} may have {bounds}, or 0 for EDL's choice; not {count}"
    return ""
