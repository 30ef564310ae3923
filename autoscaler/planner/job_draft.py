"""One job in the planner's working copy: what stays, what goes, what comes, and what keeps it from more.

`draft` holds all of them with the nodes and is what moves pods; nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autoscaler.domain import (
    NOTHING,
    Bottleneck,
    Cause,
    CreatePod,
    Job,
    NodeName,
    Pod,
    Resources,
    Role,
    Shape,
    Tier,
)


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
    def everything(self) -> list[Pod]:
        """All pods of the job that have not been told to leave."""
        return [*self.trainers, *self.servers, *self.masters, *self.strays]

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
