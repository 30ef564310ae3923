"""History: what the planner remembers from one plan to the next.

It is a value inside the view, so that `plan` stays a function (A5). The loop keeps it. A new leader starts with an
empty one and `since_s` set to its own start, so that all its windows begin afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.cluster import JobName, NodeName, PodName, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeTimes:
    """Times at which a job was last grown and last shrunk by EDL, and gave trainers back (`Cause.EFFICIENCY`).

    None: not since `History.since_s`.
    """

    job: JobName
    grown_at_s: float | None = None
    shrunk_at_s: float | None = None
    gave_back_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedJob:
    """Last preemption of a trainer of this job by the scheduler."""

    job: JobName
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGift:
    """Last time that a trainer of this job, which did no work, went to others."""

    job: JobName
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VoluntaryResize:
    """A voluntary change of a job's size, within the last minute."""

    job: JobName
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VacatedNode:
    """Surplus has left `node` for `pod`. At most one per pair (`beside-the-scheduler.md` 15)."""

    pod: PodName
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedCapacity:
    """Unused capacity: since this instant a node could hold the pod, and the scheduler still reports it
    unschedulable.
    """

    pod: PodName
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Refusal: a pod that did not use free capacity; EDL does nothing for it until `until_s`."""

    pod: PodName
    count: int
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePlacement:
    """One core pod of a waiting gang and the node on which it was proved to fit."""

    role: Role
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The placements for which capacity was freed, so that the next plan chooses the same ones."""

    job: JobName
    placements: tuple[CorePlacement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The nodes from which an aged gang bars younger ones.  They stay the same while it waits."""

    job: JobName
    nodes: frozenset[NodeName]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Shortfall: since this instant the core of a running job could not be refilled."""

    job: JobName
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMove:
    """A server's move: the pod that is to leave, and the node and number of the one that replaces it."""

    job: JobName
    pod: PodName
    node: NodeName
    ordinal: int
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDeparture:
    """A server that has left its node by a move, and to which no server of its job goes back for now (ADR 0269)."""

    job: JobName
    pod: PodName  # the one that left
    since_s: float  # when the move began
    nodes: tuple[NodeName, NodeName]  # where it was, where the new one is
    conditions: int  # a hash of these nodes, the load of others there, all documents and quotas; it counts while equal


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All that the planner remembers. Entries of pods and jobs that are gone are dropped by the next plan."""

    since_s: float = 0.0
    resizes: tuple[ResizeTimes, ...] = ()
    vacated_nodes: tuple[VacatedNode, ...] = ()
    unused_capacity: tuple[UnusedCapacity, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    bars: tuple[Bar, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    transfers_at_s: tuple[float, ...] = ()  # instants of the last minute
    changes: tuple[VoluntaryResize, ...] = ()  # likewise
    preempted: tuple[PreemptedJob, ...] = ()
    idle_gifts: tuple[IdleGift, ...] = ()
    server_moves: tuple[ServerMove, ...] = ()  # under way
    moves_given_up: tuple[ServerMove, ...] = ()  # these servers are not moved again for a while
    server_departures: tuple[ServerDeparture, ...] = ()
    server_moves_at_s: tuple[float, ...] = ()  # when those of the last minute began
