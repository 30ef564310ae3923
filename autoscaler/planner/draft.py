"""The planner's working copy of the cluster, on which the phases write one after the other.

Rooms are arrays (`rooms`: free now, free later), jobs are `JobDraft`s.  A trial is made on the draft itself and undone:
`mark` before it, `roll_back` to the mark if it came to nothing, `redo` to have it again.  So a trial costs what it
touches, not a copy of the cluster, and after a plan the draft is rolled back to the snapshot, which the next plan then
brings up to date (`memo`).

Built by `snapshot`, read by every phase; nothing here decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoscaler.domain import (
    Bar,
    Cause,
    ClusterView,
    CreatePod,
    Demand,
    History,
    JobName,
    NodeName,
    Pod,
    Policy,
    Reservation,
    Resize,
    Role,
    Seat,
    Shape,
    Tier,
)
from autoscaler.planner.job_draft import JobDraft, Leaving, Offers, Promise
from autoscaler.planner.quotas import QuotaBook
from autoscaler.planner.rank import Rank, rank_of
from autoscaler.planner.rooms import Rooms
from autoscaler.planner.shapes import Shapes

if TYPE_CHECKING:  # what other modules keep here for the plan
    from autoscaler.planner.fairness import Namespaces
    from autoscaler.planner.supply import Supply
    from autoscaler.planner.waste import Waste

SupplyKey = tuple[Rank | None, int | None]

ordinal_of: Final = attrgetter("ordinal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A pod of others that has no node: pending, announced, or headroom."""

    name: str
    shape: Shape
    rank: tuple[int, int]
    cause: Cause
    pod: Pod | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Draft:
    """All of the working copy."""

    view: ClusterView
    policy: Policy
    now_s: float
    shapes: Shapes
    rooms: Rooms
    jobs: dict[JobName, JobDraft]  # in the order of their names
    by_trainer: Mapping[int, Sequence[JobDraft]]  # jobs by the shape of their trainers
    drinkers: Mapping[int, Sequence[JobDraft]]  # those that may drink in the view, likewise
    lines: dict[int, Sequence[JobDraft]]  # those, sorted (`thirst`), as far as anybody has asked
    stirred: set[JobName]  # jobs that were not settled in the view, and those that this plan has touched
    unit: int  # `share` counts in parts of one by this
    waiting: Sequence[Pod] = ()  # pods of others that wait for a node
    standing: dict[str | None, int] = field(default_factory=dict)  # pods by workload, leaving ones apart
    is_gang_binding: bool = False  # core pods of an earlier start are still without a node
    held_on: Mapping[int, Sequence[JobName | None]] = field(default_factory=dict)  # of surplus, by node
    preempted_now: Collection[JobName] = ()  # jobs of which a trainer is leaving because the scheduler took it
    quiet_from_s: float = 0.0  # when the newest submission and the newest pod of others came
    unserved: list[Want] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    seen_rooms: set[str] = field(default_factory=set)  # judged unschedulable, yet there is room
    short: set[JobName] = field(default_factory=set)  # core that could not be refilled
    wake_at_s: list[float] = field(default_factory=list)
    changed_jobs: list[JobDraft] = field(default_factory=list)  # whose trainers came or went, again and again
    supplies: dict[SupplyKey, Supply] = field(default_factory=dict)  # of this plan
    kept_supplies: dict[SupplyKey, Supply] = field(default_factory=dict)  # of the last one, to be attached to this one
    waste: Waste | None = None
    namespaces: Namespaces | None = None
    quotas: QuotaBook | None = None
    device_needs: tuple[tuple[int, int, int], ...] | None = None  # of `gpu_rooms`
    unpaid: set[JobName] = field(default_factory=set)  # whose growth would not make good its cost
    preempted_at_s: dict[JobName, float] = field(default_factory=dict)  # when the scheduler last took a trainer
    resizes: dict[JobName, Resize] = field(default_factory=dict)
    trial_from: int = 0  # where in the log the present trial begins

    def __post_init__(self) -> None:
        self.resizes = {entry.job: entry for entry in self.view.history.resizes}
        self.quotas = QuotaBook(self.view.quotas, self.shapes, self.jobs.values()) if self.view.quotas else None
        limit_s = self.now_s - self.policy.preempted_pause_s
        self.preempted_at_s = {entry.job: entry.at_s for entry in self.history.preempted if entry.at_s > limit_s}
        self.preempted_at_s |= dict.fromkeys(self.preempted_now, self.now_s)

    @property
    def history(self) -> History:
        """What is remembered from plans before."""
        return self.view.history

    def stirred_jobs(self) -> list[JobDraft]:
        """All jobs, in the order of their names, but those that were settled in the view and are as they were there.

        Of those that are left out all pods stand and stay, and nothing comes: most phases have nothing to do there.
        """
        return [self.jobs[name] for name in sorted(self.stirred)]

    # Trials.

    def mark(self) -> int:
        """Begin a trial and return the place in the log to which it can be rolled back."""
        self.trial_from = len(self.rooms.log)
        return self.trial_from

    def roll_back(self, mark: int) -> list[Any]:
        """Undo everything since the mark, notes (demands, reservations ...) apart; return what `redo` takes."""
        log = self.rooms.log
        undone = []
        while len(log) > mark:
            entry = log.pop()
            if isinstance(entry[0], JobDraft):
                job, saved = entry
                undone.append((job, job.save()))
                job.restore(saved)
                self.changed_jobs.append(job)
            else:
                at, shape, free, later, surplus = entry
                self.rooms.carry_out(at, shape, -free, -later, -surplus)
                undone.append(entry)
        self.trial_from = mark
        return undone

    def end(self) -> None:
        """Undo everything, for good."""
        log = self.rooms.log
        for entry in reversed(log):
            if isinstance(entry[0], JobDraft):
                entry[0].restore(entry[1])
        self.rooms.undo([entry for entry in log if not isinstance(entry[0], JobDraft)])
        log.clear()

    def redo(self, undone: list[Any]) -> None:
        """Do again what was rolled back."""
        log = self.rooms.log
        for entry in reversed(undone):
            if isinstance(entry[0], JobDraft):
                job, saved = entry
                log.append((job, job.save()))
                job.restore(saved)
                self.changed_jobs.append(job)
            else:
                log.append(entry)
                self.rooms.carry_out(*entry)

    def touch(self, job: JobDraft) -> None:
        """Note the job's state before it changes: once in each trial."""
        if job.touched <= self.trial_from:
            self.rooms.log.append((job, job.save()))
            job.touched = len(self.rooms.log)
            self.stirred.add(job.job.name)

    # Shares.

    def share(self, job: JobDraft, *, more: int = 0) -> int:
        """The job's weighted dominant share, servers and master included, of ready eligible capacity (A4).

        With `more` trainers (or fewer).  Exact: a whole number of parts of one by `unit`, so shares of different jobs
        compare as they are.
        """
        if not more:
            return max(map(int.__mul__, job.usage, job.rates), default=0)
        largest = 0
        for used, amount, rate in zip(job.usage, job.trainer_amounts, job.rates, strict=True):
            largest = max(largest, (used + more * amount) * rate)
        return largest

    def share_at_ceiling(self, job: JobDraft) -> int:
        """The share that the job would have at its ceiling."""
        if job.job.name in self.stirred:
            return self.share(job, more=job.ceiling - job.size)
        if job.ceiling_share is None:
            job.ceiling_share = self.share(job, more=job.ceiling - job.size)
        return job.ceiling_share

    def part(self, job: JobDraft, roles: Iterable[Role]) -> int:
        """The share that new pods of these roles alone would have."""
        total = [0] * len(job.rates)
        for role in roles:
            for column, amount in enumerate(self.shapes.amounts[job.shapes[role]]):
                total[column] += amount
        return max(map(int.__mul__, total, job.rates), default=0)

    def quota_lack(self, job: JobDraft, roles: Iterable[Role], *, now: bool) -> str:
        """Return, in words, what the job's namespace may not ask for of these new pods; empty if it may."""
        if self.quotas is None:
            return ""
        asked = [0] * len(job.rates)
        for role in roles:
            for column, amount in enumerate(self.shapes.amounts[job.shapes[role]]):
                asked[column] += amount
        return self.quotas.lack(job.job.namespace, asked, now=now)

    # Pods that come and go.

    def create(self, job: JobDraft, role: Role, tier: Tier, node: NodeName, cause: Cause) -> None:
        """Create a pod into room that is free now; where its number is still taken, the room is held for it."""
        ordinal = job.free_ordinal(role)
        if ordinal is None:
            self.promise(job, role, tier, node)
            return
        self.touch(job)
        self._come(job, role, tier, node, now=True)
        job.ordinals.setdefault(role, set()).add(ordinal)
        pod = CreatePod(job=job.job.name, role=role, ordinal=ordinal, tier=tier, node=node, cause=cause)
        job.created.append(pod)

    def promise(self, job: JobDraft, role: Role, tier: Tier, node: NodeName) -> None:
        """Hold room, part of which is still being vacated, for a pod that a later plan will create."""
        self.touch(job)
        self._come(job, role, tier, node, now=False)
        job.promised.append(Promise(role=role, tier=tier, node=node))

    def _come(self, job: JobDraft, role: Role, tier: Tier, node: NodeName, *, now: bool) -> None:
        shape = job.shapes[role]
        is_surplus = role is Role.TRAINER and tier is Tier.SURPLUS
        self.rooms.move(self.rooms.index[node], shape, free=-1 if now else 0, later=-1, surplus=1 if is_surplus else 0)
        self.count(job, shape, times=1)
        self.changed_jobs.append(job)
        if role is Role.TRAINER:
            job.coming_trainers += 1
            job.core += tier is Tier.CORE

    def count(self, job: JobDraft, shape: int, *, times: int) -> None:
        """Add so many pods of a shape to what the job uses."""
        job.thirst = None
        for column, amount in enumerate(self.shapes.amounts[shape]):
            job.usage[column] += times * amount

    def remove(self, job: JobDraft, pods: Iterable[Pod], cause: Cause, beneficiary: str = "") -> None:
        """Tell pods of a job to leave."""
        self.touch(job)
        for pod in pods:
            shape = self.shapes.number(pod.shape)
            is_surplus = False
            for standing in (job.trainers, job.servers, job.masters):
                if pod in standing:
                    standing.remove(pod)
                    self.count(job, shape, times=-1)
                    is_surplus = standing is job.trainers and pod.tier is Tier.SURPLUS
                    job.core -= standing is job.trainers and pod.tier is Tier.CORE
            job.leaving.append(Leaving(pod=pod, cause=cause, beneficiary=beneficiary))
            if (at := self.rooms.place_of(pod)) is not None:
                self.rooms.move(at, shape, later=1, surplus=-1 if is_surplus else 0)
        self._forget_order(job)

    def withdraw(self, job: JobDraft) -> None:
        """Take back everything that this plan would create for the job."""
        self.touch(job)
        for created in job.created:
            job.ordinals[created.role].discard(created.ordinal)
            job.free_from.clear()
        for coming in job.coming:
            shape, now = job.shapes[coming.role], isinstance(coming, CreatePod)
            is_surplus = coming.role is Role.TRAINER and coming.tier is Tier.SURPLUS
            self.rooms.move(
                self.rooms.index[coming.node], shape, free=int(now), later=1, surplus=-1 if is_surplus else 0
            )
            self.count(job, shape, times=-1)
            job.core -= coming.role is Role.TRAINER and coming.tier is Tier.CORE
        job.thirst = None
        job.created.clear()
        job.promised.clear()
        job.coming_trainers = 0

    def shrink(self, job: JobDraft, pods: Iterable[Pod], cause: Cause, beneficiary: str = "") -> None:
        """Take trainers away, and as many more as make a whole step: an odd trainer is of no use to the job."""
        self.remove(job, pods, cause, beneficiary)
        trainer = job.job.trainer
        extra = len(job.trainers) - trainer.largest_allowed(len(job.trainers))
        if extra > 0:
            self.remove(job, self.last_in_line(job)[:extra], cause, beneficiary)

    # Who leaves first.

    def last_in_line(self, job: JobDraft) -> tuple[Pod, ...]:
        """The job's trainers in the order in which they leave: surplus, on closed nodes, highest ordinal first."""
        if job.line is None:
            line = sorted(job.trainers, key=ordinal_of, reverse=True)
            is_mixed = len({(pod.tier, pod.priority) for pod in line}) > 1
            if is_mixed or not all(self.rooms.open_place_of(pod) is not None for pod in line):
                line.sort(key=self._leaving_order)
            if job.job.trainer.per_node > 1:
                line = self._by_nodes(job, line)
            job.line = tuple(line)
        return job.line

    def _leaving_order(self, pod: Pod) -> tuple[bool, int, bool]:
        return (pod.tier is Tier.CORE, pod.priority, self.rooms.open_place_of(pod) is not None)

    def _by_nodes(self, job: JobDraft, line: list[Pod]) -> list[Pod]:
        """Keep the trainers of a node together, those of nodes that are not whole in front."""
        counts = Counter(pod.place for pod in line)
        last = {pod.place: pod.ordinal for pod in sorted(line, key=ordinal_of)}
        per_node = job.job.trainer.per_node

        def node_order(pod: Pod) -> tuple[tuple[bool, int, bool], bool, int]:
            return (self._leaving_order(pod), counts[pod.place] % per_node == 0, -last[pod.place])

        return sorted(line, key=node_order)

    def takeable(self, job: JobDraft) -> tuple[Pod, ...]:
        """Trainers that may be taken, in leaving order: surplus, then core beyond the minimum (`kubernetes.md` 6)."""
        line = self.last_in_line(job)
        core = sum(pod.tier is Tier.CORE for pod in line)
        return line[: len(line) - min(core, job.job.trainer.min_replicas)]

    def offers(self, job: JobDraft, rank: Rank | None = None) -> Offers:
        """The trainers that may be taken and stand on open nodes; with `rank` those that rank below it."""
        if (offers := job.offers.get(rank)) is None:
            open_place_of = self.rooms.open_place_of
            found = [
                (pod, at)
                for pod in self.takeable(job)
                if (at := open_place_of(pod)) is not None and (rank is None or rank_of(pod, self.policy) < rank)
            ]
            offers = job.offers[rank] = Offers(
                tuple([pod for pod, _ in found]),
                np.array([at for _, at in found], dtype=np.intp),
                np.array([self.shapes.number(pod.shape) for pod, _ in found], dtype=np.intp),
            )
        return offers

    def _forget_order(self, job: JobDraft) -> None:
        job.line, job.offers, job.thirst = None, {}, None
        self.changed_jobs.append(job)

    def surplus_on(self, job: JobDraft, at: int) -> list[int]:
        """The shapes of the job's surplus on a node, what comes included."""
        name = self.rooms.names[at]
        standing = [
            self.shapes.number(pod.shape) for pod in job.trainers if pod.place == name and pod.tier is Tier.SURPLUS
        ]
        coming = [pod for pod in job.coming if pod.tier is Tier.SURPLUS and pod.node == name]
        return standing + [job.shapes[Role.TRAINER]] * len(coming)

    def surplus_coming(self) -> Mapping[NodeName, set[JobName]]:
        """The jobs whose surplus comes to each node."""
        by_node: dict[NodeName, set[JobName]] = {}
        for job in self.stirred_jobs():
            for pod in job.coming:
                if pod.tier is Tier.SURPLUS:
                    by_node.setdefault(pod.node, set()).add(job.job.name)
        return by_node

    def holders_of(self, at: int, coming: Mapping[NodeName, Collection[JobName]]) -> tuple[JobDraft, ...]:
        """The jobs with surplus on a node, `surplus_coming` included, in the order of their names."""
        names = {name for name in self.held_on.get(at, ()) if name is not None}
        names.update(coming.get(self.rooms.names[at], ()))
        return tuple(self.jobs[name] for name in sorted(names) if self.surplus_on(self.jobs[name], at))

    def reserve(self, job: JobDraft, seats: Iterable[tuple[Role, NodeName]]) -> None:
        """Remember the seats for which room is being made, so that the next plan finds the same ones."""
        noted = tuple(Seat(role=role, node=node) for role, node in seats)
        self.reservations.append(Reservation(job=job.job.name, seats=noted))
