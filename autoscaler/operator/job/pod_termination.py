"""Termination of a job's pod, read from the pod alone: who wanted it to end, or what went wrong.  Pure.

A pod that was deleted has a `deletionTimestamp`, whoever deleted it; a disruption names its author in a condition; a
pod that the kubelet ended has a `status.reason`.  Any other pod ended by itself: for a trainer that is a failure
while there is data to train (`jobs.lifecycle`).

Only EDL knows which pods it deleted (`deleted_by_edl`).  After a change of leader such a pod counts as one that a
person deleted.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import (
    ENDED_PHASES,
    Raw,
    condition_of,
    integer,
    key_of,
    part,
    parts,
    text,
    unix_s,
)
from autoscaler.domain import NodeName

_DISRUPTIONS: Final = {
    "PreemptionByScheduler": "scheduler",
    "EvictionByEvictionAPI": "drain",
    "DeletionByTaintManager": "drain",
    "TerminationByKubelet": "node",
    "DeletionByPodGC": "node",
}
_SIGNALLED: Final = 128  # a shell's way to say that a signal ended the process
_GENERIC_REASONS: Final = frozenset({"Completed", "Error"})  # these say no more than the exit code


class TerminationCause(StrEnum):
    """Cause of a pod's termination."""

    EDL = "edl"
    SCHEDULER = "scheduler"  # it preempted the pod for another one
    DRAIN = "drain"  # the eviction API, or a taint
    NODE = "node"  # the kubelet was short of something, shut down, or is gone
    USER = "user"  # deleted by somebody, who does not say why
    MASTER = "master"  # a server that its master released after it had handed over its buckets
    OWN_EXIT = "exit"  # nobody asked it to


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTermination:
    """A pod that is leaving or has ended.  `code` None: not known, or not over yet."""

    pod: str  # NAMESPACE/NAME
    uid: str
    cause: TerminationCause
    has_ended: bool
    node: NodeName | None
    code: int | None = None
    exit_description: str = ""  # how it ended, for people

    @property
    def is_failure(self) -> bool:
        """True if the pod ended unasked."""
        return self.cause is TerminationCause.OWN_EXIT and self.has_ended


def termination_of(raw: Raw, deleted_by_edl: Iterable[str] = ()) -> PodTermination | None:
    """Return the termination of a pod, under way or past; None while it stays.  `deleted_by_edl`: UIDs of pods."""
    has_ended = text(raw, "status", "phase") in ENDED_PHASES
    cause = _cause_of(raw, deleted_by_edl)
    if cause is TerminationCause.OWN_EXIT and not has_ended:
        return None
    code, description = _describe_exit(raw)
    return PodTermination(
        pod=key_of(raw),
        uid=text(raw, "metadata", "uid"),
        cause=cause,
        has_ended=has_ended,
        node=NodeName(text(raw, "spec", "nodeName")) or None,
        code=code,
        exit_description=description,
    )


def script_failed_at_s(raw: Raw, container: str) -> float | None:
    """Return when this container of an ended pod exited with an error of its own, as a script that raises, in Unix
    seconds without a fraction; None if it did not, a signal ended it, or its node does not say when."""
    statuses = parts(raw, "status", "containerStatuses")
    ended = next((part(one, "state", "terminated") for one in statuses if text(one, "name") == container), {})
    has_failed = 0 < integer(ended, "exitCode") < _SIGNALLED
    return unix_s(text(ended, "finishedAt")) if has_failed else None


def _cause_of(raw: Raw, deleted_by_edl: Iterable[str]) -> TerminationCause:
    if text(raw, "metadata", "uid") in deleted_by_edl:
        return TerminationCause.EDL
    disruption = condition_of(raw, "DisruptionTarget")
    if disruption.get("status") == "True" and (by := _DISRUPTIONS.get(text(disruption, "reason"))):
        return TerminationCause(by)
    if text(raw, "metadata", "deletionTimestamp"):
        return TerminationCause.USER
    if text(raw, "status", "reason"):  # Evicted, Shutdown, NodeLost, OutOfcpu, NodeAffinity, UnexpectedAdmissionError
        return TerminationCause.NODE
    return TerminationCause.OWN_EXIT


def _describe_exit(raw: Raw) -> tuple[int | None, str]:
    """Return the exit code of the container that failed first, and how it ended in words."""
    if reason := text(raw, "status", "reason"):
        message = text(raw, "status", "message")
        return None, f"was ended by its node: {reason}" + (f" ({message})" if message else "")
    statuses = [*parts(raw, "status", "initContainerStatuses"), *parts(raw, "status", "containerStatuses")]
    over = [(text(status, "name"), part(status, "state", "terminated")) for status in statuses]
    over = [(name, ended) for name, ended in over if ended]
    if not over:
        return None, "ended without an exit code from its node"
    failed = [(name, ended) for name, ended in over if integer(ended, "exitCode")]
    name, ended = min(failed or over, key=lambda item: text(item[1], "finishedAt"))
    code = integer(ended, "exitCode")
    description = _describe_code(code)
    if (why := text(ended, "reason")) and why not in _GENERIC_REASONS:
        description += f" ({why}: it asked for more memory than its limit)" if why == "OOMKilled" else f" ({why})"
    if len(statuses) > 1:
        description = f"ended: its container {name} {description}"
    if message := text(ended, "message").strip():
        description += f"; its termination message: {message}"
    return code, description


def _describe_code(code: int) -> str:
    if code > _SIGNALLED:
        try:
            return f"was killed by {signal.Signals(code - _SIGNALLED).name}"
        except ValueError:
            pass
    return f"exited with code {code}"
