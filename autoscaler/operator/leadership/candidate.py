"""Leader election by a Lease: decides which operator may write.  Pure; `lease` reads and writes the object.

A Lease carries its holder and the time of the last renewal, but clocks of two machines differ.  So a candidate never
reads that time: it takes a Lease over when it has *seen it unchanged* for the Lease's duration on its own clock.  The
holder counts from the instant before it sent the renewal that succeeded, and stops at the renew deadline, before
anybody else can have waited long enough:

    renewal sent ---- retry period ---- renew deadline ---- lease duration
                      renews again      writes no more      somebody else may take it

An operator that was paused and resumes finds its deadline passed before it can write.  The Lease's resourceVersion
keeps two writers apart.  Instants are seconds of a clock that runs on while the machine sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from autoscaler.errors import InvalidSpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Timing of the Lease; Kubernetes' defaults.

    Raises InvalidSpecError unless duration_s > renew_deadline_s > retry_s > 0.  The time between deadline and
    duration covers writes that were in flight (`api_port.REQUEST_TIMEOUT_S`); an operator that stops in order
    releases its Lease.
    """

    duration_s: int = 15  # the API keeps whole seconds
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration_s > self.renew_deadline_s > self.retry_s > 0:
            problem = f"{self.duration_s}, {self.renew_deadline_s:g} and {self.retry_s:g} s do not follow one another"
            raise InvalidSpecError("leaderElection", problem, "leaseDuration > renewDeadline > retryPeriod > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """Content of the Lease object.  `holder` is empty if the last one gave the Lease back."""

    holder: str
    resource_version: str
    transitions: int = 0
    duration_s: float = 0.0  # as its holder keeps it


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCandidate:
    """State of one candidate for the Lease.  `held_until_s`: it may write before that instant."""

    identity: str
    timing: LeaseTiming
    seen: LeaseRecord | None = None
    seen_since_s: float = -inf  # for so long the record has not changed
    held_until_s: float = -inf

    def may_write(self, now_s: float) -> bool:
        """True if this operator leads at this instant.  Ask right before each write: a pause may just have ended."""
        return now_s < self.held_until_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLease:
    """Create the Lease (`over` is None), or replace exactly this version of it."""

    over: LeaseRecord | None
    transitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAt:
    """Decision: read the Lease again at `until_s`."""

    until_s: float


def observe_lease(candidate: LeaseCandidate, record: LeaseRecord | None, now_s: float) -> LeaseCandidate:
    """Return the candidate after it has read the Lease; None: there is no Lease."""
    if record == candidate.seen and record is not None:
        return candidate
    held_until_s = candidate.held_until_s if record is not None and record.holder == candidate.identity else -inf
    return replace(candidate, seen=record, seen_since_s=now_s, held_until_s=held_until_s)


def plan_lease(candidate: LeaseCandidate, now_s: float) -> WriteLease | RetryAt:
    """Return what to do about the Lease as last read."""
    seen = candidate.seen
    if seen is None:
        return WriteLease(over=None, transitions=0)
    if seen.holder == candidate.identity:
        return WriteLease(over=seen, transitions=seen.transitions)
    if not seen.holder:
        return WriteLease(over=seen, transitions=seen.transitions + 1)
    free_at_s = candidate.seen_since_s + max(seen.duration_s, candidate.timing.duration_s)
    if now_s >= free_at_s:
        return WriteLease(over=seen, transitions=seen.transitions + 1)
    return RetryAt(until_s=min(free_at_s, now_s + candidate.timing.retry_s))


def renew_hold(candidate: LeaseCandidate, record: LeaseRecord, *, sent_s: float) -> LeaseCandidate:
    """Return the candidate after its write went through; `sent_s` is an instant before the write left."""
    until_s = max(candidate.held_until_s, sent_s + candidate.timing.renew_deadline_s)
    return replace(candidate, seen=record, seen_since_s=sent_s, held_until_s=until_s)


def resign(candidate: LeaseCandidate) -> LeaseCandidate:
    """Return the candidate that writes nothing from now on; the Lease may be given back."""
    return replace(candidate, held_until_s=-inf)
