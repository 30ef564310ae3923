"""A training job as the planner sees it: sizes, shapes, priority.

Documents are parsed and completed by `autoscaler.manifests`, so every value here is already valid. What a value must
fulfil is checked once more, since a plan that rests on a wrong one would be wrong everywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import inf
from typing import Final

from autoscaler.domain.cluster import JobName, Role, Shape, Trait
from autoscaler.domain.idleness import IdleTrainer
from autoscaler.errors import InvalidSpecError
from autoscaler.throughput import CurveShape, FittedCurve
from autoscaler.throughput.remaining_time import RemainingWork

DEFAULT_WEIGHT = 100


class JobState(StrEnum):
    """The state of a job, as far as the planner is concerned."""

    ACTIVE = "active"
    SUSPENDED = "suspended"  # the user's switch: all pods leave, the job stays
    ENDING = "ending"  # at its end or suspended: pods are deleted in order, none is created
    OVER = "over"  # completed, failed or deleted: what is left of its pods leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """How many trainers, of which shape.  Allowed sizes: min, min + step, ... up to max; or the powers of two there; or
    the listed `sizes`, from min to max.

    `per_node`: trainers come so many to a node, for jobs that fill whole machines; every size is a multiple of it.
    """

    shape: Shape
    min_replicas: int
    max_replicas: int
    step: int = 1
    powers_of_two: bool = False
    sizes: tuple[int, ...] = ()  # ascending; empty: by step, or by powers of two
    per_node: int = 1
    pinned_replicas: int = 0  # 0: EDL decides; above 0: this size and no other, while it fits
    min_run_s: float = 0.0  # a younger trainer is removed only by forced changes
    efficiency: float = 0.0  # least that each trainer of a step must add, in trainers of the minimum; 0: not asked
    traits: frozenset[Trait] = frozenset()

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            problem = f"is {self.min_replicas}, maxReplicas is {self.max_replicas}"
            raise InvalidSpecError("spec.trainer.minReplicas", problem, "1 <= minReplicas <= maxReplicas")
        if self.per_node < 1:
            raise InvalidSpecError("spec.trainer.perNode", f"is {self.per_node}", "1 or more")
        self._check_sizes()
        if self.min_replicas % self.per_node:
            problem = f"is {self.min_replicas}, perNode is {self.per_node}"
            raise InvalidSpecError("spec.trainer.minReplicas", problem, "a multiple of perNode")
        if not (self.powers_of_two or self.sizes) and self.step % self.per_node:
            problem = f"is {self.step}, perNode is {self.per_node}"
            raise InvalidSpecError("spec.trainer.step", problem, "a multiple of perNode")
        if not 0.0 <= self.min_run_s < inf:
            raise InvalidSpecError("spec.trainer.minRunSeconds", f"is {self.min_run_s}", "0 or more")
        if not 0.0 <= self.efficiency <= 1.0:
            raise InvalidSpecError("spec.trainer.efficiency", f"is {self.efficiency}", "0 to 1; 0 switches it off")
        if self.pinned_replicas and not self.is_allowed(self.pinned_replicas):
            raise InvalidSpecError("spec.trainer.replicas", f"is {self.pinned_replicas}", f"{self.sizes_text}, or 0")

    @property
    def sizes_text(self) -> str:
        """The allowed sizes in words."""
        if self.sizes:
            *others, last = map(str, self.sizes)
            return f"{', '.join(others)} or {last}" if others else last
        if self.powers_of_two:
            return f"the powers of two from {self.min_replicas} to {self.max_replicas}"
        return f"{self.min_replicas} to {self.max_replicas}" + (f" in steps of {self.step}" if self.step > 1 else "")

    @property
    def ceiling(self) -> int:
        """The size that the job would have on an endless cluster."""
        return self.pinned_replicas or self.largest_allowed(self.max_replicas)

    def is_allowed(self, size: int) -> bool:
        """True if `size` is one of the job's sizes (0 apart)."""
        return self.min_replicas <= size <= self.max_replicas and size == self.largest_allowed(size)

    def largest_allowed(self, size: int) -> int:
        """The largest allowed size that is at most `size`; never below the minimum."""
        size = max(self.min_replicas, min(size, self.max_replicas))
        if self.sizes:
            return self.sizes[bisect_right(self.sizes, size) - 1]
        if self.powers_of_two:
            return 1 << size.bit_length() - 1
        return size - (size - self.min_replicas) % self.step

    def next_size(self, size: int) -> int | None:
        """The smallest allowed size above `size`; None at the ceiling."""
        if size < self.min_replicas:
            following = self.min_replicas
        elif self.sizes:
            above = bisect_right(self.sizes, size)
            following = self.sizes[above] if above < len(self.sizes) else self.max_replicas + 1
        else:
            standing = self.largest_allowed(size)
            following = 2 * standing if self.powers_of_two else standing + self.step
        return following if following <= self.ceiling else None

    @property
    def is_by_single_trainers(self) -> bool:
        """True if every size from the minimum to the maximum is allowed."""
        is_listed_whole = len(self.sizes) == self.max_replicas - self.min_replicas + 1
        return is_listed_whole if self.sizes else self.step == 1 and not self.powers_of_two

    def _check_sizes(self) -> None:
        """Raise InvalidSpecError for a step, powers of two or listed sizes that contradict each other or the bounds."""
        if self.step < 1:
            raise InvalidSpecError("spec.trainer.step", f"is {self.step}", "1 or more")
        if self.powers_of_two and self.step != 1:
            raise InvalidSpecError("spec.trainer.step", "cannot be combined with powersOfTwo", "remove one of the two")
        if self.powers_of_two and not is_power_of_two(self.min_replicas):
            raise InvalidSpecError("spec.trainer.minReplicas", f"is {self.min_replicas}", "a power of two")
        if not self.sizes:
            return
        if problem := find_size_problem(self.sizes, self.min_replicas, self.max_replicas, self.per_node):
            raise InvalidSpecError("spec.trainer.sizes", *problem)
        if self.powers_of_two:
            raise InvalidSpecError("spec.trainer.sizes", *SIZES_BESIDE_POWERS)
        if self.step != 1:
            raise InvalidSpecError("spec.trainer.step", *STEP_BESIDE_SIZES)


STEP_BESIDE_SIZES: Final = ("cannot be combined with sizes", "remove one of the two")
SIZES_BESIDE_POWERS: Final = ("cannot be combined with powersOfTwo", "remove one of the two")


def find_size_problem(sizes: Sequence[int], low: int, high: int, per_node: int) -> tuple[str, str] | None:
    """Problem and hint of listed sizes for a job of `low` to `high` trainers; None if they are as they should be."""
    shown = ", ".join(map(str, sizes))
    if any(after <= before for before, after in pairwise(sizes)):
        return f"are {shown}", "write each size once, in ascending order"
    if not sizes or sizes[0] != low:
        return f"are {shown or 'empty'}, and minReplicas is {low}", "the first size is minReplicas"
    if sizes[-1] != high:
        return f"are {shown}, and maxReplicas is {high}", "the last size is maxReplicas"
    odd = next((size for size in sizes if size % per_node), None)
    return None if odd is None else (f"contain {odd}, and perNode is {per_node}", "multiples of perNode")


def is_power_of_two(number: int) -> bool:
    """1, 2, 4, ..."""
    return number > 0 and number & (number - 1) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """Parameter servers.  Their number stays at the minimum where the cluster cannot move their state.

    One for every `trainers_per_server` trainers, within the bounds; `pinned_replicas` above 0: this number instead.
    """

    shape: Shape
    min_replicas: int
    max_replicas: int
    trainers_per_server: int = 4
    pinned_replicas: int = 0
    grace_s: float = 30.0  # time for a terminating server to hand over its buckets
    prefers_anti_affinity: bool = False  # two copies of the model: rather on different nodes
    traits: frozenset[Trait] = frozenset()

    def __post_init__(self) -> None:
        if not 1 <= self.min_replicas <= self.max_replicas:
            problem = f"is {self.min_replicas}, maxReplicas is {self.max_replicas}"
            raise InvalidSpecError("spec.parameterServer.minReplicas", problem, "1 <= minReplicas <= maxReplicas")
        if self.trainers_per_server < 1:
            raise InvalidSpecError(
                "spec.parameterServer.trainersPerServer", f"is {self.trainers_per_server}", "1 or more"
            )
        if self.pinned_replicas and not self.is_allowed(self.pinned_replicas):
            allowed = f"{self.min_replicas} to {self.max_replicas}, or 0"
            raise InvalidSpecError("spec.parameterServer.replicas", f"is {self.pinned_replicas}", allowed)

    def is_allowed(self, count: int) -> bool:
        """True if the job may have this many servers."""
        return self.min_replicas <= count <= self.max_replicas

    def count_beside(self, trainers: int) -> float:
        """Return how many servers come with the trainers, as a fraction, so that no whole one looks like a knee."""
        if self.pinned_replicas:
            return float(self.pinned_replicas)
        return min(max(trainers / self.trainers_per_server, self.min_replicas), self.max_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSpec:
    """The job's master and its standbys."""

    shape: Shape
    replicas: int = 1
    traits: frozenset[Trait] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training job.  Times are seconds on the cluster's clock."""

    name: JobName
    trainer: TrainerSpec
    master: MasterSpec
    servers: ServerSpec | None = None
    namespace: str = "default"
    priority: int = 0  # of its core pods
    priority_class: str = ""  # of these too: for quotas alone, ranks are compared by value
    weight: int = DEFAULT_WEIGHT  # divides its share, among jobs of the same priority
    submitted_at_s: float = 0.0
    state: JobState = JobState.ACTIVE
    hold_until_s: float = 0.0  # after failures: no pod is created before this instant
    hold_reason: str = ""  # of a pause that follows no failure
    grace_s: float = 30.0  # the user's termination grace; surplus gets at most `Policy.surplus_grace_s` of it
    checkpoint_age_s: float | None = None  # work since the last checkpoint; None or NaN: unknown, priced as expensive
    resize_cost_s: float = 0.0  # pause of all its trainers per resize, as its owner states it
    resize_pause_s: float = 0.0  # the same as a group's master measures it; 0 or NaN: not measured
    waiting_share: float = (
        0.0  # of its trainers' time, 0 to 1: waiting for parameter servers, in a group for data; for people
    )
    idle: tuple[IdleTrainer, ...] = ()  # its trainers that do no work (ADR 0287)
    remaining_s: float | None = None  # until its work is done at this size; None or NaN: unknown, taken as long
    throughput: FittedCurve | None = None  # by its size, as observed; None: nothing was observed
    remaining_work: RemainingWork | None = None  # for people, in snapshots: the operator plans with `remaining_s` alone

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise InvalidSpecError("spec.weight", f"is {self.weight}", "1 or more; the default is 100")
        if not 0.0 <= self.resize_cost_s < inf:
            raise InvalidSpecError("spec.trainer.resizeCostSeconds", f"is {self.resize_cost_s}", "0 or more")

    @property
    def pause_s(self) -> float:
        """Pause of all its trainers per resize: the longer of what is stated and what was measured, and finite.

        An owner may know of costs that no master sees, such as caches to fill (ADR 0234).
        """
        is_measured = 0.0 < self.resize_pause_s < inf  # no NaN decides (A7)
        return max(self.resize_cost_s, self.resize_pause_s) if is_measured else self.resize_cost_s

    def samples_per_s(self, curve: CurveShape, trainers: int) -> float:
        """Return the throughput that a curve predicts for this many trainers and the servers that come with them."""
        return curve.samples_per_s(trainers, 1.0 if self.servers is None else self.servers.count_beside(trainers))

    @property
    def server_count(self) -> int:
        """Number of the job's servers while it is fixed."""
        return 0 if self.servers is None else self.servers.min_replicas

    def traits_of(self, role: Role) -> frozenset[Trait]:
        """Return what the template of a role says that quotas may select by."""
        if role is Role.TRAINER:
            return self.trainer.traits
        if role is Role.SERVER and self.servers is not None:
            return self.servers.traits
        return self.master.traits
