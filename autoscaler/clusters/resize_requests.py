"""What a new size meets of the one before, in words for whoever sets it: pure.

Two resizes may be asked for at once.  The newest number holds at once and replaces the one before, whether that was
carried out or not; pods that are leaving and buckets that are on their way end first, and pods that are to stand in
their places wait for that (ADR 0315).  A suspended job keeps the number for later.  Which sizes may be set at all is
`sizes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeState:
    """One role of a job: `wanted` until now, `there` and staying, told to leave, and buckets on their way."""

    desired: int
    present: int
    leaving: int = 0
    moving: int = 0
    is_suspended: bool = False  # the job: all of its pods leave, or have left, whatever is wanted

    @property
    def is_settled(self) -> bool:
        """Nothing of the number before is left to do."""
        return self.present == self.desired and not self.leaving and not self.moving

    def describe(self, count: int) -> str:
        """What becomes of the number before, now that `count` is set (0: EDL decides); empty: it is carried out."""
        if self.is_suspended:
            return "the job is suspended: the size is kept, and holds once it is resumed"
        if self.is_settled:
            return ""
        if count == self.desired:
            return f"the resize to {self.desired} that is under way goes on: {self._state()}"
        ends = "; what has begun ends first" if self.leaving or self.moving else ""
        return f"replaces the resize to {self.desired} that was under way: {self._state()}{ends}"

    def _state(self) -> str:
        told = [f"{self.present} of {self.desired} {'is' if self.present == 1 else 'are'} there"]
        told += [f"{self.leaving} {'is' if self.leaving == 1 else 'are'} leaving"] if self.leaving else []
        told += [f"{_counted(self.moving, 'bucket')} on the way"] if self.moving else []
        return ", ".join(told)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def find_size_problem(name: str, job: Job, role: str, count: int) -> str:
    """Why the job called `name` cannot be pinned at so many `trainers` or `servers`: "" if it can.  0: unpinned."""
    if role == "servers":
        return _find_server_problem(name, job, count)
    if count and not job.trainer.is_allowed(count):
        return f"spec.trainer.replicas: tj/{name} has the sizes {job.trainer.sizes}, or 0 for EDL's choice; not {count}"
    return ""


def _find_server_problem(name: str, job: Job, count: int) -> str:
    servers = job.servers
    if servers is None:
        return f"spec.parameterServer: tj/{name} has none, and so no tables; a job without servers gets none later"
    if count and not servers.is_allowed(count):
        bounds = f"{servers.min_replicas} to {servers.max_replicas} servers"
        return f"spec.parameterServer.replicas: tj/{name} may have {bounds}, or 0 for EDL's choice; not {count}"
    return ""
