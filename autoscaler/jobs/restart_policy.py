"""Restart policy: when a silent master or parameter server must hang, and when one that failed is started again.  Pure.

A process that ends is started again at once; one that is stopped or hangs (SIGSTOP, a deadlock, a disk that never
answers) would keep its job waiting for ever.  Its silence is no proof of that, so the limits lie beyond what passes by
itself: a silent connection ends after 15 s and made anew within 6 (`master.api.wire.grpc_options`),
and an etcd that is away or another leader are *answers* (`progress.WhyNoAnswer`).  Killing too early costs a take-over
or a roll-back, no sample.  A server is heard of through its master: connected to it or not.

Not here: asking (`master_connections`), killing and starting again (`clusters.local.pods.hung_processes`).  On
Kubernetes the kubelet does both: liveness probes (`clusters.kubernetes.builders`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SILENCE_LIMIT_S: Final = 30.0
"""Of one that has been heard of before."""

START_LIMIT_S: Final = 120.0
"""Of one that never was: it may still be starting on a machine with much else to do."""

LONGEST_POLL_GAP_S: Final = 5.0
"""Longer between two questions and it was the asker who stood still: that time says nothing about the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSilence:
    """How long one process has been silent; the next process of the same pod has another key."""

    process: str
    has_answered: bool
    silent_since_s: float  # the last answer, or the first question of those that were asked without a gap
    polled_at_s: float

    @property
    def silent_s(self) -> float:
        return self.polled_at_s - self.silent_since_s

    @property
    def is_hung(self) -> bool:
        return self.silent_s >= (SILENCE_LIMIT_S if self.has_answered else START_LIMIT_S)


def observe_answer(before: MasterSilence | None, process: str, *, has_answered: bool, now_s: float) -> MasterSilence:
    """Return what is known after one more question to this process."""
    if before is None or before.process != process:
        return MasterSilence(process=process, has_answered=has_answered, silent_since_s=now_s, polled_at_s=now_s)
    if has_answered or now_s - before.polled_at_s > LONGEST_POLL_GAP_S:
        is_known = has_answered or before.has_answered
        return replace(before, has_answered=is_known, silent_since_s=now_s, polled_at_s=now_s)
    return replace(before, polled_at_s=now_s)


LONGEST_PAUSE_S: Final = 30.0
STEADY_AFTER_S: Final = 10.0
"""A process that ran this long has started well; its next failure is a first one again."""


def pause_s(failures: int) -> float:
    """Return the pause before a restart after so many failures in a row: 0, 1, 2, 4, ... up to 30 s."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, 2.0 ** (min(failures, 10) - 2))
