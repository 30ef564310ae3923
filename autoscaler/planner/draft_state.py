"""What a plan knows of its working copy: the fields of the draft, shares, and who leaves first.  Nothing here writes.

`draft` adds the moves; every phase reads both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from autoscaler.domain import (
    Bar,
    Cause,
    ClusterView,
    Demand,
    History,
    JobName,
    NodeName,
    Pod,
    Policy,
    Reservation,
    Resize,
    Role,
    ServerMove,
    Shape,
    Tier,
)
from autoscaler.planner.working_copy.free_capacity import Rooms
from autoscaler.planner.working_copy.grades import grade_of
from autoscaler.planner.working_copy.planned_job import JobDraft, Offers
from autoscaler.planner.working_copy.quota_usage import Newcomer, QuotaBook
from autoscaler.planner.working_copy.ranks import Rank, rank_of
from autoscaler.planner.working_copy.shapes import Shapes

if TYPE_CHECKING:  # what other modules keep here for the plan
    from autoscaler.planner.placement.reclaimable import Supply
    from autoscaler.planner.placement.waste import Waste
    from autoscaler.planner.working_copy.fairness import Namespaces

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

    @property
    def is_there(self) -> bool:
        """Whether it is a pod already, which the scheduler places, or one that is only expected."""
        return self.pod is not None


@dataclass(slots=True, kw_only=True, eq=False)
class DraftState:
    """All of the working copy, to be read."""

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
    is_gang_binding: bool = False  # core pods of a start a moment ago are still without a node
    starts: list[JobName] = field(default_factory=list)  # gangs that this plan starts, the first first
    held_on: Mapping[int, Sequence[JobName | None]] = field(default_factory=dict)  # of surplus, by node
    preempted_now: Collection[JobName] = ()  # jobs of which a trainer is leaving because the scheduler took it
    burst_until_s: float = 0.0  # from when on no more submissions are expected in a row
    quiet_from_s: float = 0.0  # when the newest submission and the newest pod of others came
    unserved: list[Want] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    server_moves: list[ServerMove] = field(default_factory=list)  # under way, and those that this plan begins
    moves_given_up: list[ServerMove] = field(default_factory=list)  # of the last minutes
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
    largest_share: int = 0  # that any admitted job reaches at its ceiling, once asked for
    device_needs: tuple[tuple[int, int, int], ...] | None = None  # of `gpu_rooms`
    unpaid: set[JobName] = field(default_factory=set)  # whose growth would not make good its cost
    preempted_at_s: dict[JobName, float] = field(default_factory=dict)  # when the scheduler last took a trainer
    resizes: dict[JobName, Resize] = field(default_factory=dict)
    trial_from: int = 0  # where in the log the present trial begins

    def __post_init__(self) -> None:
        self.resizes = {entry.job: entry for entry in self.view.history.resizes}
        self.quotas = QuotaBook(self.view, self.shapes, self.jobs.values()) if self.view.quotas else None
        limit_s = self.now_s - self.policy.preempted_pause_s
        self.preempted_at_s = {entry.job: entry.at_s for entry in self.history.preempted if entry.at_s > limit_s}
        since_s = self.now_s - self.policy.refusal_backoff_limit_s
        self.moves_given_up = [move for move in self.history.moves_given_up if move.since_s > since_s]
        self.preempted_at_s |= dict.fromkeys(self.preempted_now, self.now_s)

    @property
    def history(self) -> History:
        """What is remembered from plans before."""
        return self.view.history

    @property
    def moves_servers(self) -> bool:
        """Whether servers may go to another node: the adapter can do it, and the policy wants it."""
        can, policy = self.view.capabilities, self.policy
        is_wanted = policy.server_moves_per_minute > 0 or policy.server_moves_percent_per_minute > 0
        return is_wanted and can.moves_servers and can.servers_elastic

    def stirred_jobs(self) -> list[JobDraft]:
        """All jobs, in the order of their names, but those that were settled in the view and are as they were there.

        Of those that are left out all pods stand and stay, and nothing comes: most phases have nothing to do there.
        """
        return [self.jobs[name] for name in sorted(self.stirred)]

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
        return max(map(int.__mul__, self.asked_by(job, roles), job.rates), default=0)

    def quota_lack(self, job: JobDraft, roles: Iterable[Role], *, now: bool) -> str:
        """Return, in words, what the job's namespace may not ask for of these new pods; empty if it may."""
        if self.quotas is None:
            return ""
        return self.quotas.lack(job, self.newcomers(job, roles), now=now)

    def newcomers(self, job: JobDraft, roles: Iterable[Role]) -> list[Newcomer]:
        """Return what new pods of these roles would be: core while the job lacks core trainers, then surplus."""
        lacking, ordinals = job.job.trainer.min_replicas - job.core, job.free_ordinals(Role.TRAINER)
        is_graded = self.quotas is not None and self.quotas.asks_for_grades
        found: list[Newcomer] = []
        for role in roles:
            grade = 0
            if role is Role.TRAINER:
                ordinal, lacking = next(ordinals), lacking - 1
                if lacking < 0:
                    grade = self.grade_at(job, ordinal) if is_graded else 1
            found.append((role, grade))
        return found

    def grade_at(self, job: JobDraft, ordinal: int) -> int:
        """The grade of a surplus trainer, by the share that the job reaches with it (`grades`)."""
        if not self.largest_share:
            admitted = (other for other in self.jobs.values() if other.is_running or other.is_starting)
            self.largest_share = max(map(self.share_at_ceiling, admitted), default=0)
        return grade_of(self.share(job, more=ordinal + 1 - job.size), self.largest_share)

    def asked_by(self, job: JobDraft, roles: Iterable[Role]) -> list[int]:
        """Return what new pods of these roles ask for in all, by column."""
        asked = [0] * len(job.rates)
        for role in roles:
            for column, amount in enumerate(self.shapes.amounts[job.shapes[role]]):
                asked[column] += amount
        return asked

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

    # Surplus on nodes.

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
