"""How long a master or a parameter server was not heard of, and when that must be a process that stands still.

A process that ends is started again at once; one that is stopped or hangs (SIGSTOP, a deadlock, a disk that never
answers) would keep its job waiting for ever.  Its silence is no proof of that, so the limits lie beyond what passes by
itself: a connection that fell silent is given up after 15 s and made anew within 6 (`master.api.wire.grpc_options`),
and an etcd that is away or another leader are *answers* (`masters.NoProgress`).  Killing too early costs a take-over
or a roll-back, no sample.  A server is heard of through its master: connected to it or not.

Pure.  Not here: asking (`masters`), killing and starting again (`clusters.local.standstill`).  On Kubernetes that is
the kubelet's business: liveness probes (`clusters.kubernetes.building`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SILENCE_LIMIT_S: Final = 30.0
"""Of one that has been heard of before."""

START_LIMIT_S: Final = 120.0
"""Of one that never was: it may still be starting on a machine with much else to do."""

UNASKED_S: Final = 5.0
"""Longer between two questions and it was the asker who stood still: that time says nothing about the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSilence:
    """What was heard of one process; the next process of the same pod has another key."""

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


def observe_answer(before: MasterSilence | None, process: str, *, has_answered: bool, now_s: float) -> MasterSilence:
    """What is known after one more question to this process."""
    if before is None or before.process != process:
        return MasterSilence(process=process, has_answered=has_answered, quiet_since_s=now_s, asked_at_s=now_s)
    if has_answered or now_s - before.asked_at_s > UNASKED_S:
        is_known = has_answered or before.has_answered
        return replace(before, has_answered=is_known, quiet_since_s=now_s, asked_at_s=now_s)
    return replace(before, asked_at_s=now_s)
