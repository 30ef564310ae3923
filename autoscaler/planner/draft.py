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
    NOTHING,
    Bar,
    Bottleneck,
    Cause,
    ClusterView,
    CreatePod,
    Demand,
    Job,
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

    def vacate(self, requests: Resources) -> None:
        """A pod is told to leave: its room can be promised from here on."""
        self.later += requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A pod that this plan tells to leave, and for whose sake."""

    pod: Pod
    cause: Cause
    beneficiary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A pod of a job that this plan would create once its room, or its gate, is there."""

    role: Role
    tier: Tier
    node: NodeName


@dataclass(slots=True, kw_only=True)
class JobDraft:
    """One job: what stays, what goes, what comes."""

    job: Job
    now: int = 0  # trainers that count as size in the view
    servers_now: int = 0  # likewise
    is_degraded: bool = False  # runs without all of its core
    is_running: bool = False  # has been started: some of its pods stand
    is_starting: bool = False  # this plan starts it
    trainers: list[Pod] = field(default_factory=list)  # that stay
    servers: list[Pod] = field(default_factory=list)
    masters: list[Pod] = field(default_factory=list)
    strays: list[Pod] = field(default_factory=list)  # exist, but count for nothing: node lost, or not scheduled yet
    ordinals: dict[Role, set[int]] = field(default_factory=dict)  # taken, by whatever pod
    leaving: list[Leaving] = field(default_factory=list)
    created: list[CreatePod] = field(default_factory=list)
    promised: list[Promise] = field(default_factory=list)
    usage: Resources = NOTHING  # of all that stays or comes
    held: int = 0  # trainers that fit and wait for the window of growth
    bottleneck: Bottleneck | None = None
    message: str = ""
    until_s: float | None = None

    def copy(self) -> JobDraft:
        """Return an independent copy for a trial."""
        return replace(
            self,
            trainers=list(self.trainers),
            servers=list(self.servers),
            masters=list(self.masters),
            ordinals={role: set(taken) for role, taken in self.ordinals.items()},
            leaving=list(self.leaving),
            created=list(self.created),
            promised=list(self.promised),
        )

    @property
    def coming(self) -> list[CreatePod | Promise]:
        """Pods that this plan creates or promises."""
        return [*self.created, *self.promised]

    @property
    def size(self) -> int:
        """Trainers that the job will have when all of this plan has come true."""
        return len(self.trainers) + sum(pod.role is Role.TRAINER for pod in self.coming)

    @property
    def spare(self) -> int:
        """How many trainers can be taken without touching the minimum."""
        return max(0, len(self.trainers) - self.job.trainer.min_replicas)

    def next_trainer_tier(self) -> Tier:
        """CORE while the job has fewer core trainers than its minimum (`kubernetes.md` 6)."""
        core = sum(pod.tier is Tier.CORE for pod in self.trainers)
        core += sum(pod.role is Role.TRAINER and pod.tier is Tier.CORE for pod in self.coming)
        return Tier.CORE if core < self.job.trainer.min_replicas else Tier.SURPLUS

    def next_ordinal(self, role: Role) -> int:
        """Take the smallest ordinal that no pod of this role has, leaving ones included."""
        taken = self.ordinals.setdefault(role, set())
        ordinal = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(ordinal)
        return ordinal

    def shape_of(self, role: Role) -> Shape:
        """What a new pod of this role asks for."""
        if role is Role.TRAINER:
            return self.job.trainer.shape
        if role is Role.SERVER and self.job.servers is not None:
            return self.job.servers.shape
        return self.job.master.shape

    def block(self, bottleneck: Bottleneck, message: str, *, until_s: float | None = None) -> None:
        """Note what keeps the job from its next size."""
        self.bottleneck, self.message, self.until_s = bottleneck, message, until_s


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

    def reserve(self, draft: JobDraft, seats: Iterable[tuple[Role, NodeName]]) -> None:
        """Remember the seats for which room is being made, so that the next plan finds the same ones."""
        noted = tuple(Seat(role=role, node=node) for role, node in seats)
        self.reservations.append(Reservation(job=draft.job.name, seats=noted))
