"""The planner's working copy of the cluster, on which the phases write one after the other.

Each open node has two amounts.  `free` is what nobody occupies or has been promised: a pod created into it is safe at
once (A2).  `later` is what will be free when everything that is leaving has left, less what waits for it: a promise
into it can be kept, not yet carried out.  Whatever is promised must fit into `later`; whatever is created into both.

Built by `snapshot`, read by every phase; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from autoscaler.domain import (
    Bar,
    Cause,
    ClusterView,
    CreatePod,
    Demand,
    JobName,
    Node,
    NodeName,
    Pod,
    Policy,
    Reservation,
    Resources,
    Role,
    Seat,
    Shape,
    Tier,
)
from autoscaler.planner.job_draft import JobDraft, Leaving, Promise


@dataclass(slots=True, kw_only=True)
class Room:
    """What an open node still offers."""

    node: Node
    free: Resources
    later: Resources

    def has(self, requests: Resources, *, now: bool) -> bool:
        """Whether the requests fit: with `now` for a creation, without for a promise."""
        return requests.fits_into(self.later) and (not now or requests.fits_into(self.free))

    def take(self, requests: Resources, *, now: bool) -> None:
        """Give the requests away: created now, or promised."""
        self.later -= requests
        if now:
            self.free -= requests

    def give_back(self, requests: Resources, *, now: bool) -> None:
        """Undo `take`."""
        self.later += requests
        if now:
            self.free += requests

    def vacate(self, requests: Resources) -> None:
        """A pod is told to leave: its room can be promised from here on."""
        self.later += requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A pod of others that has no node: pending, announced, or headroom."""

    name: str
    shape: Shape
    rank: tuple[int, int]
    cause: Cause
    pod: Pod | None = None


@dataclass(slots=True, kw_only=True)
class Draft:
    """All of the working copy."""

    view: ClusterView
    policy: Policy
    now_s: float
    rooms: dict[NodeName, Room]
    jobs: dict[JobName, JobDraft]
    capacities: dict[JobName, Resources]  # of the ready nodes that accept the job's trainers
    unserved: list[Want] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    seen_rooms: set[str] = field(default_factory=set)  # judged unschedulable, yet there is room
    short: set[JobName] = field(default_factory=set)  # core that could not be refilled
    wake_at_s: list[float] = field(default_factory=list)

    def copy(self) -> Draft:
        """Return an independent copy of rooms and jobs for a trial; the notes are shared."""
        rooms = {name: replace(room) for name, room in self.rooms.items()}
        return replace(self, rooms=rooms, jobs={name: job.copy() for name, job in self.jobs.items()})

    def adopt(self, trial: Draft) -> None:
        """Go on from a trial.  Job drafts taken before are of the past: take them anew."""
        self.rooms, self.jobs = trial.rooms, trial.jobs

    def share(self, draft: JobDraft, *, usage: Resources | None = None) -> Fraction:
        """The job's weighted dominant share: servers and master included, of ready eligible capacity (A4)."""
        capacity = self.capacities[draft.job.name]
        used = draft.usage if usage is None else usage
        parts = (Fraction(amount, held) for name, amount in used.amounts() if (held := capacity.amount(name)) > 0)
        return max(parts, default=Fraction(0)) / draft.job.weight

    def create(self, draft: JobDraft, role: Role, tier: Tier, node: NodeName, cause: Cause) -> None:
        """Create a pod into room that is free now."""
        requests = draft.shape_of(role).requests
        self.rooms[node].take(requests, now=True)
        draft.usage += requests
        ordinal = draft.next_ordinal(role)
        pod = CreatePod(job=draft.job.name, role=role, ordinal=ordinal, tier=tier, node=node, cause=cause)
        draft.created.append(pod)

    def promise(self, draft: JobDraft, role: Role, tier: Tier, node: NodeName) -> None:
        """Hold room, part of which is still being vacated, for a pod that a later plan will create."""
        requests = draft.shape_of(role).requests
        self.rooms[node].take(requests, now=False)
        draft.usage += requests
        draft.promised.append(Promise(role=role, tier=tier, node=node))

    def remove(self, draft: JobDraft, pods: Iterable[Pod], cause: Cause, beneficiary: str = "") -> None:
        """Tell pods of a job to leave."""
        for pod in pods:
            for standing in (draft.trainers, draft.servers, draft.masters):
                if pod in standing:
                    standing.remove(pod)
                    draft.usage -= pod.requests
            draft.leaving.append(Leaving(pod=pod, cause=cause, beneficiary=beneficiary))
            if pod.place in self.rooms:
                self.rooms[pod.place].vacate(pod.requests)

    def withdraw(self, draft: JobDraft) -> None:
        """Take back everything that this plan would create for the job."""
        for created in draft.created:
            self.rooms[created.node].free += draft.shape_of(created.role).requests
            draft.ordinals[created.role].discard(created.ordinal)
        for coming in draft.coming:
            requests = draft.shape_of(coming.role).requests
            self.rooms[coming.node].later += requests
            draft.usage -= requests
        draft.created.clear()
        draft.promised.clear()

    def shrink(self, draft: JobDraft, pods: Iterable[Pod], cause: Cause, beneficiary: str = "") -> None:
        """Take trainers away, and as many more as make a whole step: an odd trainer is of no use to the job."""
        self.remove(draft, pods, cause, beneficiary)
        trainer = draft.job.trainer
        extra = len(draft.trainers) - trainer.largest_allowed(len(draft.trainers))
        if extra > 0:
            self.remove(draft, self.last_in_line(draft)[:extra], cause, beneficiary)

    def last_in_line(self, draft: JobDraft) -> list[Pod]:
        """The job's trainers in the order in which they leave: surplus, on closed nodes, highest ordinal first."""
        return sorted(
            draft.trainers,
            key=lambda pod: (pod.tier is Tier.CORE, pod.priority, pod.place in self.rooms, -pod.ordinal),
        )

    def takeable(self, draft: JobDraft) -> list[Pod]:
        """Trainers that may be taken, in leaving order: surplus, then core beyond the minimum (`kubernetes.md` 6)."""
        line = self.last_in_line(draft)
        core = sum(pod.tier is Tier.CORE for pod in line)
        return line[: len(line) - min(core, draft.job.trainer.min_replicas)]

    def reserve(self, draft: JobDraft, seats: Iterable[tuple[Role, NodeName]]) -> None:
        """Remember the seats for which room is being made, so that the next plan finds the same ones."""
        noted = tuple(Seat(role=role, node=node) for role, node in seats)
        self.reservations.append(Reservation(job=draft.job.name, seats=noted))
