"""P8: the idle pods of others that hold GPUs, the order in which they leave, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from autoscaler.domain import IdlePod, Pod, PodName, PodPhase, ReclaimMode, Role
from autoscaler.domain.idleness import StayReason
from autoscaler.planner.formatting import listed
from autoscaler.planner.working_copy.node_arrays import Mask
from autoscaler.planner.working_copy.working_copy import WorkingCopy

MOST_CANDIDATES: Final = 64
"""For one that waits, of the pods that may leave for it: each is a trial."""

TOLD_STEPS: Final = (
    (5, "5 min"),
    (10, "10 min"),
    (30, "30 min"),
    (60, "1 h"),
    (120, "2 h"),
    (240, "4 h"),
    (480, "8 h"),
    (24 * 60, "1 day"),
    (2 * 24 * 60, "2 days"),
    (7 * 24 * 60, "7 days"),
    (30 * 24 * 60, "30 days"),
)
"""Minutes, and what is told of them: each change of a text is a write of the status of each that waits."""

KEPT_BY: Final = {
    StayReason.MINIMUM: "a declared minimum keeps them",
    StayReason.ORDINAL: "a higher ordinal is in use",
    StayReason.PAUSED: "asked again later",
}
"""What is told of GPUs whose owners agreed, if nobody else has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGpus:
    """An idle pod with what it holds."""

    idle: IdlePod
    pod: Pod
    at: int

    @property
    def gpu_count(self) -> int:
        return self.pod.requests.gpu_count


def is_due(copy: WorkingCopy, idle: IdlePod) -> bool:
    """True if the pod may be given back now; if it may be later, the next plan is made then."""
    return isfinite(idle.due_at_s) and copy.is_due(idle.due_at_s)


def held_gpus(copy: WorkingCopy) -> dict[PodName, HeldGpus]:
    """Return the idle pods of others that hold GPUs on an open node, by name, the longest unused first."""
    by_name = {idle.pod: idle for idle in copy.view.idle_pods}
    found = []
    for pod in copy.view.pods:
        idle = by_name.get(pod.name)
        at = None if idle is None else copy.capacity.open_place_of(pod)
        is_held = pod.role is Role.EXTERNAL and pod.phase is PodPhase.READY and pod.requests.gpu_count > 0
        if idle is not None and at is not None and is_held and pod.created_at_s <= idle.since_s <= copy.now_s:
            found.append(HeldGpus(idle=idle, pod=pod, at=at))
    found.sort(key=lambda one: (*turn_of(one.idle, by_name), one.pod.name))
    return {one.pod.name: one for one in found}


def turn_of(idle: IdlePod, by_name: Mapping[PodName, IdlePod]) -> tuple[float, int]:
    """Return since when all are unused that leave with this pod, and how many leave before it."""
    since_s, before, above = idle.since_s, 0, idle.goes_after
    while above is not None and above in by_name and before < MOST_CANDIDATES:
        before += 1
        since_s, above = max(since_s, by_name[above].since_s), by_name[above].goes_after
    return since_s, before


def candidates(
    held: Mapping[PodName, HeldGpus],
    accepted: Mask,
    gone: Collection[PodName],
    may_leave: Callable[[HeldGpus], bool],
) -> list[HeldGpus]:
    """Return the longest unused of the pods that may leave for one that waits, `MOST_CANDIDATES` at most.

    All are on nodes of `accepted`, or go before one that is.  `gone` leave anyway.
    """
    found: dict[PodName, HeldGpus] = {}
    for name, one in held.items():
        if len(found) == MOST_CANDIDATES:
            break
        if accepted[one.at] and name not in found:
            row = _row_to(one, held, {*gone, *found})
            if len(found) + len(row) <= MOST_CANDIDATES and all(map(may_leave, row)):
                found |= {each.pod.name: each for each in row}
    return list(found.values())


def _row_to(one: HeldGpus, held: Mapping[PodName, HeldGpus], gone: Collection[PodName]) -> list[HeldGpus]:
    """Return this pod after those that go before it; nobody if one of these stays."""
    row = [one]
    while (above := row[-1].idle.goes_after) is not None and above not in gone:
        if above not in held or len(row) == MOST_CANDIDATES:
            return []
        row.append(held[above])
    return row[::-1]


def after_their_own(held: Sequence[HeldGpus], gone: Collection[PodName]) -> list[HeldGpus]:
    """Return those of these pods, in their turn, whose predecessors are among them or in `gone`."""
    left, names = [], set(gone)
    for one in held:
        if one.idle.goes_after is None or one.idle.goes_after in names:
            left.append(one)
            names.add(one.pod.name)
    return left


def held_text(copy: WorkingCopy, held: Sequence[HeldGpus], *, is_agreed: bool) -> str:
    """Return who holds the GPUs, since when unused, and what would free them, in one line."""
    count, pods = sum(one.gpu_count for one in held), listed(sorted({one.pod.name for one in held}))
    nodes = listed(sorted({copy.capacity.names[one.at] for one in held}))
    unused = unused_text(min(copy.now_s - one.idle.since_s for one in held))
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    is_are = "is" if count == 1 else "are"
    text = f"{gpus} on {nodes} {is_are} held by {pods}, unused {unused}"
    if not is_agreed:
        return text + _kept_text(copy, [one.idle for one in held], "it" if count == 1 else "them")
    if copy.policy.idle_reclaim is ReclaimMode.ACT and not copy.policy.is_frozen:
        return f"{text}; given back after a notice"
    return f"{text}; idleReclaim: act frees them"


def _kept_text(copy: WorkingCopy, idle: Sequence[IdlePod], them: str) -> str:
    """Return why GPUs are not given back: what their owners can do about it first."""
    if all((one.kept_until_s or 0.0) > copy.now_s for one in idle):
        return ", and kept by their owner"
    if any(one.after_s is None and one.stays is None for one in idle):
        return f"; opt-in would free {them}"
    reasons = {one.stays for one in idle}
    return next((f"; {words}" for reason, words in KEPT_BY.items() if reason in reasons), "; not due yet")


def unused_text(seconds: float) -> str:
    """Return for how long somebody has not used a GPU, in words that seldom change."""
    told = [text for minutes, text in TOLD_STEPS if minutes * 60 <= seconds]
    return f"for over {told[-1]}" if told else "for under 5 min"
