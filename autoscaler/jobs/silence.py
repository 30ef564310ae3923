"""How long a job's master has given no answer, and when that is too long to be anything but a stopped or hung process.

A process that ends is started again at once; one that stands still (SIGSTOP, a deadlock, a disk that never answers)
would keep its job without a master for ever.  Its silence is no proof of that, so the limits lie beyond what passes by
itself: a connection that fell silent is given up after 15 s and made anew within 6 (`master.api.channel`), and an etcd
that is away or another leader are *answers* (`masters.NoProgress`).  Killing too early costs a take-over, no sample.

Pure.  Not here: asking (`masters`), killing and starting again (`clusters.local.runtime`).  On Kubernetes that is the
kubelet's business: a livenessProbe in the job's master template.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SILENCE_LIMIT_S: Final = 30.0
"""Of a master that has answered before."""

START_LIMIT_S: Final = 120.0
"""Of one that has never answered: it may still be starting on a machine with much else to do."""

UNASKED_S: Final = 5.0
"""Longer between two questions and it was the asker who stood still: that time says nothing about the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """What was heard of one process of a master; the next process of the same pod has another key."""

    process: str
    has_answered: bool
    quiet_since_s: float  # the last answer, or the first question of those that were asked without a gap
    asked_at_s: float

    @property
    def quiet_s(self) -> float:
        return self.asked_at_s - self.quiet_since_s

    @property
    def is_hung(self) -> bool:
        return self.quiet_s >= (SILENCE_LIMIT_S if self.has_answered else START_LIMIT_S)


def note_asked(before: Hearing | None, process: str, *, has_answered: bool, now_s: float) -> Hearing:
    """What is known after one more question to this process."""
    if before is None or before.process != process:
        return Hearing(process=process, has_answered=has_answered, quiet_since_s=now_s, asked_at_s=now_s)
    if has_answered or now_s - before.asked_at_s > UNASKED_S:
        is_known = has_answered or before.has_answered
        return replace(before, has_answered=is_known, quiet_since_s=now_s, asked_at_s=now_s)
    return replace(before, asked_at_s=now_s)
