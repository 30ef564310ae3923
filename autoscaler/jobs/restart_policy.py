"""Restart policy: after which silence a process counts as hung, and after which pause a failed one is restarted.

Pure.

A process that ends is restarted at once; one that is stopped or hangs (SIGSTOP, a deadlock, a disk that never
answers) would keep its job waiting permanently.  Silence alone proves nothing, so the limits exceed transient causes:
a silent connection ends after 15 s and is made again within 6 s (`master.api.wire.grpc_options`), and an etcd that is
away or another leader are *answers* (`progress.WhyNoAnswer`).  Killing too early costs a take-over or a roll-back, no
sample.  A server's silence is known through its master: connected to it or not.

Not here: polling (`operator.controllers.progress_poller`), killing (`local_run.hung_processes`; on Kubernetes liveness
probes, `clusters.kubernetes.builders`), and restarting, which is the kubelet's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

SILENCE_LIMIT_S: Final = 30.0
"""Silence after which a process that has answered before counts as hung."""

START_LIMIT_S: Final = 120.0
"""The same for a process that never answered: it may still be starting on a busy machine."""

LONGEST_POLL_GAP_S: Final = 5.0
"""A longer gap between two polls means that the poller itself was stopped; such a gap does not count as silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSilence:
    """Silence of one master or server; the next process of the same pod has another key."""

    process: str
    has_answered: bool
    silent_since_s: float  # the last answer, or the first of the polls without a gap
    polled_at_s: float

    @property
    def silent_s(self) -> float:
        return self.polled_at_s - self.silent_since_s

    @property
    def is_hung(self) -> bool:
        return self.silent_s >= (SILENCE_LIMIT_S if self.has_answered else START_LIMIT_S)


def observe_answer(before: ProcessSilence | None, process: str, *, has_answered: bool, now_s: float) -> ProcessSilence:
    """Update the silence of a process after one more poll."""
    if before is None or before.process != process:
        return ProcessSilence(process=process, has_answered=has_answered, silent_since_s=now_s, polled_at_s=now_s)
    if has_answered or now_s - before.polled_at_s > LONGEST_POLL_GAP_S:
        is_known = has_answered or before.has_answered
        return replace(before, has_answered=is_known, silent_since_s=now_s, polled_at_s=now_s)
    return replace(before, polled_at_s=now_s)


LONGEST_PAUSE_S: Final = 30.0
STEADY_AFTER_S: Final = 10.0
"""Run time after which a process counts as started; its next failure is counted as the first."""


LONGEST_REFUSED_PAUSE_S: Final = 300.0


def pause_s(failures: int) -> float:
    """Pause before a restart, by the number of failures in a row: 0, 1, 2, 4, ... up to 30 s."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, 2.0 ** (min(failures, 10) - 2))


def refused_pause_s(refusals: int) -> float:
    """Pause before a new trainer, by the number of refused ones in a row: 5, 10, 20, ... up to 300 s.

    Nothing but another script or image ends it, and each try costs a pod.
    """
    return min(LONGEST_REFUSED_PAUSE_S, 5.0 * 2.0 ** (min(max(refusals, 1), 10) - 1))
