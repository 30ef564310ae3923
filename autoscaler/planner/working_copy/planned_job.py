"""One job in the working copy: its remaining, leaving and created pods, and its bottleneck.

`working_copy` moves the pods; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from autoscaler.domain import (
    NO_BENEFICIARY,
    Beneficiary,
    Bottleneck,
    Capabilities,
    Cause,
    CreatePod,
    Decision,
    IdleTrainer,
    Job,
    JobName,
    JobState,
    NodeName,
    Pod,
    PodPhase,
    Role,
    ServerMove,
    Shape,
    Tier,
)
from autoscaler.planner.working_copy.offers import Offers, cut_out
from autoscaler.planner.working_copy.progress import ProgressScale
from autoscaler.planner.working_copy.shapes import ColumnAmounts

Price = tuple[int, int, float]  # cost of a job's trainers as victims: priority, fairness key, age of the checkpoint
GrowthKey = tuple[int, int, int, str]  # order of growth: priority, share, share after the step, name
SavedJob = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A pod that this plan removes, why and for whom."""

    pod: Pod
    cause: Cause
    beneficiary: Beneficiary = NO_BENEFICIARY


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPod:
    """A pod that a later plan creates once its capacity, or its ordinal, is free."""

    role: Role
    tier: Tier
    node: NodeName
    grade: int = 0  # where a quota counts grades


@dataclass(slots=True, kw_only=True, eq=False)
class PlannedJob:
    """One job: what stays, what leaves, what comes."""

    spec: Job
    shapes: dict[Role, int] = field(default_factory=dict)  # numbers of new pods' shapes
    trainer_amounts: ColumnAmounts = ()  # of a new trainer, by column
    rates: ColumnAmounts = ()  # what one unit of each resource adds to the weighted share
    progress: ProgressScale | None = None  # under `Fairness.PROGRESS`
    server_limit: int = 0  # servers that the job may have at most
    ceiling: int = 0  # the size that the job would have on an endless cluster
    worthwhile: int = 0  # the largest size that `TrainerSpec.efficiency` allows it; the ceiling while that is not known
    is_probing: bool = False  # this plan makes it smaller to measure its throughput there
    now: int = 0  # trainers that count as size in the view
    servers_now: int = 0  # likewise
    is_steady: bool = False  # in the view: runs with all that it must have, at an allowed size, and nothing is due
    can_grow: bool = False  # in the view: steady, and capacity alone keeps it from its next size
    is_degraded: bool = False  # runs without all of its core
    is_running: bool = False  # has been started: some of its pods exist
    is_starting: bool = False  # this plan starts it
    trainers: list[Pod] = field(default_factory=list)  # that stay
    servers: list[Pod] = field(default_factory=list)
    masters: list[Pod] = field(default_factory=list)
    inactive: list[Pod] = field(default_factory=list)  # exist, but count for nothing: node lost, or not scheduled yet
    ordinals: dict[Role, set[int]] = field(default_factory=lambda: {role: set() for role in Role})  # taken, by any pod
    free_from: dict[Role, int] = field(default_factory=dict)  # no smaller number is free
    leaving: list[Leaving] = field(default_factory=list)
    created: list[CreatePod] = field(default_factory=list)
    reserved: list[ReservedPod] = field(default_factory=list)
    usage: list[int] = field(default_factory=list)  # of all that stays or comes, by column
    leaving_usage: list[int] = field(default_factory=list)  # of what was leaving when the plan began
    core: int = 0  # trainers of tier CORE that stay or come
    coming_trainers: int = 0  # created or reserved
    waiting_growth: int = 0  # trainers that fit and wait for the growth window
    moving: list[ServerMove] = field(default_factory=list)  # moves of servers; both servers exist, or will
    bottleneck: Bottleneck | None = None
    message: str = ""
    until_s: float | None = None
    held_up_by: tuple[JobName, ...] = ()
    removal_order: tuple[Pod, ...] | None = None  # `ranks.removal_order`, until a trainer comes or goes
    offers: dict[Any, Offers] = field(default_factory=dict)  # `ranks.offers_of`, likewise
    unchanged_decision: Decision | None = None  # the decision of the last plan in which nothing happened to the job
    growth_key: GrowthKey | None = None  # `growth_queue.growth_key`, until a pod comes or goes
    ceiling_share: int | None = None  # `attained` at the ceiling, while the job is steady
    share_below: tuple[GrowthKey, int] | None = None  # a growth key, and what one step less would leave
    next_step: tuple[int, int] | None = None  # a size and `growth_queue.step_of` at it
    touched: int = -1  # where in the log its state was last saved

    def save(self) -> SavedJob:
        """Return all that phases change, to be put back by `restore`."""
        return (
            (self.is_degraded, self.is_running, self.is_starting, self.core, self.coming_trainers, self.waiting_growth),
            (self.bottleneck, self.message, self.until_s, self.removal_order, self.offers, self.touched),
            (list(self.trainers), list(self.servers), list(self.masters), list(self.inactive), list(self.usage)),
            (list(self.leaving), list(self.created), list(self.reserved)),
            {role: set(taken) for role, taken in self.ordinals.items()},
        )

    def restore(self, saved: SavedJob) -> None:
        """Put back what `save` returned."""
        flags, notes, pods, changes, self.ordinals = saved
        self.growth_key = None
        self.free_from = {}
        self.is_degraded, self.is_running, self.is_starting, self.core, self.coming_trainers, self.waiting_growth = (
            flags
        )
        self.bottleneck, self.message, self.until_s, self.removal_order, self.offers, self.touched = notes
        self.trainers, self.servers, self.masters, self.inactive, self.usage = pods
        self.leaving, self.created, self.reserved = changes

    @property
    def coming(self) -> list[CreatePod | ReservedPod]:
        """Pods that this plan creates or reserves."""
        return [*self.created, *self.reserved]

    @property
    def all_pods(self) -> list[Pod]:
        """All pods of the job that stay."""
        return [*self.trainers, *self.servers, *self.masters, *self.inactive]

    @property
    def size(self) -> int:
        """Trainers that the job will have when all of this plan has come true."""
        return len(self.trainers) + self.coming_trainers

    @property
    def is_questioned(self) -> bool:
        """True if `sharing.efficiency` may want it smaller: it is beyond what pays, or was seen at one size only."""
        if self.spec.throughput is None or not self.spec.trainer.efficiency:
            return False
        return len(self.trainers) > self.worthwhile or not self.spec.throughput.is_known

    @property
    def spare(self) -> int:
        """Trainers that can be taken without touching the minimum."""
        return max(0, len(self.trainers) - self.spec.trainer.min_replicas)

    def idle_trainers(self) -> list[Pod]:
        """Return the trainers that stay and do no work; a verdict on an earlier pod of the name is none on this one."""
        return [pod for pod in self.trainers if self._verdict_on(pod) is not None]

    def hung_trainers(self) -> list[Pod]:
        """Return those of them that hang and are to be replaced."""
        return [pod for pod in self.trainers if (idle := self._verdict_on(pod)) is not None and idle.is_hung]

    def _verdict_on(self, pod: Pod) -> IdleTrainer | None:
        return next(
            (
                idle
                for idle in self.spec.idle
                if idle.pod == pod.name and pod.phase is PodPhase.READY and pod.created_at_s <= idle.since_s
            ),
            None,
        )

    def share(self, *, more: int = 0) -> int:
        """Return the job's weighted dominant share of ready eligible capacity, servers and master included (A4).

        With `more` trainers (or fewer).  Exact: an integer in `WorkingCopy.share_unit`ths, so shares of different
        jobs compare as they are.
        """
        if not more:
            return max(map(int.__mul__, self.usage, self.rates), default=0)
        largest = 0
        for used, amount, rate in zip(self.usage, self.trainer_amounts, self.rates, strict=True):
            largest = max(largest, (used + more * amount) * rate)
        return largest

    def attained(self, *, more: int = 0) -> int:
        """What fairness between jobs compares, with `more` trainers or fewer: the weighted dominant share, or progress.

        Both rise strictly with the trainers; each compares with its own kind alone.
        """
        return self.share(more=more) if self.progress is None else self.progress.attained(self.size + more)

    def forget_share(self) -> None:
        """Drop what was derived from shares, or progress, in units that no longer hold."""
        self.unchanged_decision = self.growth_key = self.ceiling_share = None

    def forget_removal_order(self, gone: Sequence[Pod]) -> None:
        """Drop, or shorten, the order in which trainers leave: these have left it.

        Without surplus the others stand in the same order, and as many of them are core beyond the minimum.
        """
        is_shortened = self.spec.trainer.per_node == 1 and all(pod.tier is Tier.SURPLUS for pod in gone)
        if not is_shortened or self.removal_order is None:
            self.removal_order, self.offers = None, {}
            return
        names = {pod.name for pod in gone}
        left = list(self.removal_order)
        cut_out(left, names)
        self.removal_order = tuple(left)
        self.offers = {rank: offers.without(names) for rank, offers in self.offers.items()}

    def is_in_service(self, now_s: float) -> bool:
        """True if the job runs, its state is active, and it does not pause after failures."""
        return self.is_running and self.spec.state is JobState.ACTIVE and now_s >= self.spec.hold_until_s

    @property
    def hold_text(self) -> str:
        """Why no pod of the job is created before `hold_until_s`."""
        return self.spec.hold_reason or "pause after failures"

    def missing(self, capabilities: Capabilities) -> list[Role]:
        """Return the roles of the core pods that a running job lacks."""
        spec = self.spec
        masters = 0 if capabilities.replaces_masters else max(0, spec.master.replicas - len(self.masters))
        servers = max(0, spec.server_count - len(self.servers))
        trainers = max(0, spec.trainer.min_replicas - len(self.trainers))
        return [Role.MASTER] * masters + [Role.SERVER] * servers + [Role.TRAINER] * trainers

    def classify(self, capabilities: Capabilities) -> None:
        """Derive from the view whether the job is degraded, steady, and able to grow, before anything is planned."""
        spec, size = self.spec.trainer, len(self.trainers)
        is_active = self.is_running and self.spec.state is JobState.ACTIVE
        is_whole = is_active and not self.missing(capabilities)
        self.is_degraded = is_active and not is_whole
        has_core = self.core >= spec.min_replicas
        is_allowed = size <= self.ceiling and size == spec.largest_allowed(size) and not self.is_questioned
        has_fixed_servers = self.spec.servers is None or not capabilities.servers_elastic
        has_fixed_servers &= all(pod.replaces is None for pod in self.servers)
        has_fixed_servers &= not self.spec.idle
        self.is_steady = is_whole and has_core and is_allowed and has_fixed_servers and self.spec.hold_until_s <= 0.0
        following = spec.next_size(size)
        self.can_grow = self.is_steady and following is not None and following <= self.worthwhile

    def next_trainer_tier(self) -> Tier:
        """Return CORE while the job has fewer core trainers than its minimum (`beside-the-scheduler.md` 6)."""
        return Tier.CORE if self.core < self.spec.trainer.min_replicas else Tier.SURPLUS

    def free_ordinal(self, role: Role, *, extra: int = 0) -> int | None:
        """Return the smallest ordinal that no pod of this role has, leaving ones included.

        Servers are numbered below their count, by which their master knows them: where a leaving pod still has the last
        of these numbers there is None until it is gone (ADR 0121). A server that replaces another may have one of
        `extra` numbers beyond (ADR 0118).
        """
        ordinal = self.free_from[role] = next(self.free_ordinals(role))
        return None if role is Role.SERVER and ordinal >= self.server_limit + extra else ordinal

    def free_ordinals(self, role: Role) -> Iterator[int]:
        """Yield the ordinals that no pod of this role has, from the smallest on."""
        taken = self.ordinals.get(role, ())
        return (number for number in count(self.free_from.get(role, 0)) if number not in taken)

    def awaits_ordinal(self, role: Role) -> bool:
        """True if an ordinal for a new pod comes free by itself, since a leaving pod has it."""
        held = [*self.servers, *self.coming, *self.inactive]
        return self.free_ordinal(role) is not None or (sum(pod.role is role for pod in held) < self.spec.server_count)

    def shape_of(self, role: Role) -> Shape:
        """Return the shape of a new pod of this role."""
        if role is Role.TRAINER:
            return self.spec.trainer.shape
        if role is Role.SERVER and self.spec.servers is not None:
            return self.spec.servers.shape
        return self.spec.master.shape

    def reset(self) -> None:
        """Drop what phases recorded without moving a pod, which is not in the log, for the next plan."""
        self.bottleneck, self.message, self.until_s, self.held_up_by, self.touched = None, "", None, (), -1
        self.is_starting, self.waiting_growth, self.moving, self.is_probing = False, 0, [], False

    def block(
        self,
        bottleneck: Bottleneck,
        message: str,
        *,
        until_s: float | None = None,
        held_up_by: tuple[JobName, ...] = (),
    ) -> None:
        """Record the job's bottleneck, until when it lasts, and the gangs for which its capacity is kept.

        The last call stands: later phases and `explain` know more of a constraint than the phase that met it first."""
        self.bottleneck, self.message, self.until_s, self.held_up_by = bottleneck, message, until_s, held_up_by
