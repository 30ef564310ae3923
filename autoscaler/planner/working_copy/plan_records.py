"""Records of a plan beside its moves.

`ExternalDemand`: external pods without a node, and the plan's answers; `CarriedOver`: input of the next plan's
history (`next_history`); `PlanCache`: values computed once per plan.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autoscaler.domain import (
    Bar,
    Cause,
    CorePlacement,
    DemandAnswer,
    DemandState,
    History,
    JobName,
    NodeName,
    Pod,
    PodName,
    Policy,
    Reservation,
    ResizeTimes,
    Role,
    ServerDeparture,
    ServerMove,
    Shape,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Demand for the capacity of one external pod: a pending pod, a replica that is announced, or headroom."""

    name: PodName
    shape: Shape
    rank: tuple[int, int]
    cause: Cause
    pod: Pod | None = None

    @property
    def exists(self) -> bool:
        """True if the pod exists, so that a scheduler places it; False for one that is only expected."""
        return self.pod is not None

    @property
    def urgency(self) -> tuple[int, int, float, str]:
        """Sort key, most urgent first: highest priority, highest tier, oldest pod, name."""
        return (-self.rank[0], -self.rank[1], 0.0 if self.pod is None else self.pod.created_at_s, self.name)


@dataclass(slots=True, kw_only=True)
class ExternalDemand:
    """Pods that EDL does not own: who waits for a node, who is still unserved, and the plan's answer to each."""

    waiting: Sequence[Pod] = ()  # for a node
    pod_count_by_workload: Mapping[str | None, int] = field(default_factory=dict)  # terminating pods apart
    unserved: list[Want] = field(default_factory=list)
    answers: list[DemandAnswer] = field(default_factory=list)
    unused_capacity: set[str] = field(default_factory=set)  # pods that are marked unschedulable although they fit

    def answer(self, want: Want, state: DemandState, node: NodeName | None = None, victims: Sequence[Pod] = ()) -> None:
        """Write down what becomes of the want."""
        self.answers.append(
            DemandAnswer(
                pod=want.name,
                shape=want.shape,
                cause=want.cause,
                state=state,
                node=node,
                victims=tuple(pod.name for pod in victims),
            )
        )


@dataclass(slots=True, kw_only=True)
class CarriedOver:
    """Input of the next plan."""

    reservations: list[Reservation] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    shortfalls: set[JobName] = field(default_factory=set)  # running jobs whose core could not be refilled
    server_moves: list[ServerMove] = field(default_factory=list)  # under way, and those that this plan begins
    moves_given_up: list[ServerMove] = field(default_factory=list)  # within the longest pause after refusals
    server_departures: list[ServerDeparture] = field(default_factory=list)  # that still count, as far as is known
    resizes: Mapping[JobName, ResizeTimes] = field(default_factory=dict)
    preempted_at_s: Mapping[JobName, float] = field(default_factory=dict)  # when the scheduler last took a trainer

    idle_gifts_at_s: Mapping[JobName, float] = field(default_factory=dict)  # whose idle trainers went to others lately

    def remember_placements(self, job: JobName, placements: Sequence[tuple[Role, NodeName]]) -> None:
        """Record the nodes that are being vacated, so that the next plan chooses the same ones."""
        noted = tuple(CorePlacement(role=role, node=node) for role, node in placements)
        self.reservations.append(Reservation(job=job, placements=noted))


def carry_over(history: History, preempted_now: Iterable[JobName], *, now_s: float, policy: Policy) -> CarriedOver:
    """Return the record with which a plan begins: what the policy's pauses still make count."""
    preempted = {entry.job: entry.at_s for entry in history.preempted if entry.at_s > now_s - policy.preempted_pause_s}
    given_up_from_s = now_s - policy.refusal_backoff_limit_s
    return CarriedOver(
        moves_given_up=[move for move in history.moves_given_up if move.since_s > given_up_from_s],
        server_departures=list(history.server_departures),
        resizes={entry.job: entry for entry in history.resizes},
        preempted_at_s=preempted | dict.fromkeys(preempted_now, now_s),
        idle_gifts_at_s={one.job: one.at_s for one in history.idle_gifts if one.at_s > now_s - policy.idle_pause_s},
    )


class PlanCache:
    """Values that a plan computes on demand, by their type and a key.

    A value that `lasts` is handed to the next plan, where `from_last_plan` returns it; its owner brings it up to date.
    """

    def __init__(self, lasting: dict[tuple[type, Hashable], Any] | None = None) -> None:
        self.lasting: dict[tuple[type, Hashable], Any] = {}
        self._last = {} if lasting is None else lasting
        self._values: dict[tuple[type, Hashable], Any] = {}

    def get(self, kind: type[T], make: Callable[[], T], *, key: Hashable = None, lasts: bool = False) -> T:
        """Return the value of this type and key, made by `make` where this plan has none yet."""
        value = self._values.get((kind, key))
        if value is None:
            value = self._values[kind, key] = make()
            if lasts:
                self.lasting[kind, key] = value
        found: T = value
        return found

    def from_last_plan(self, kind: type[T], key: Hashable) -> T | None:
        """Take the value that the last plan left, if it left one."""
        found: T | None = self._last.pop((kind, key), None)
        return found
