"""Hypothetical changes to a plan's inputs, and the resulting sizes.

Every kind of change is a frozen value that can be applied to the inputs, and a *ladder*: the changes of that kind from
the smallest to the largest that is tried, one unit apart. `search` climbs the ladders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final, Protocol

from autoscaler.domain import ClusterView, Decision, Job, JobName, Policy

NO_CAP: Final = 1_000_000  # transfers per minute, as good as unlimited


class ChangeKind(StrEnum):
    """Kinds of change, in the order in which an owner prefers them."""

    TIME = "Time"
    VIEW = "View"
    RESUME = "Resume"
    PIN = "Pin"
    MAX = "Max"
    EFFICIENCY = "Efficiency"
    OPEN = "Open"
    HEADROOM = "Headroom"
    QUOTA = "Quota"
    WEIGHT = "Weight"
    PRIORITY = "Priority"
    STEP = "Step"
    MIN = "Min"
    RESOURCE = "Resource"
    NODES = "Nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """All that a plan depends on."""

    view: ClusterView
    policy: Policy
    now_s: float

    def job(self, name: JobName) -> Job:
        """Return the job of this name.  Raises KeyError."""
        for job in self.view.jobs:
            if job.name == name:
                return job
        raise KeyError(name)

    def with_job(self, job: Job) -> PlanInputs:
        """Return the inputs with the job in place of the one of its name."""
        return replace(self, view=self.view.evolve(jobs=(job,)))


class HypotheticalChange(Protocol):
    """A hypothetical change of the inputs. `amount` counts in the kind's own unit; more of it is a larger change."""

    @property
    def kind(self) -> ChangeKind:
        """The changed thing."""

    @property
    def amount(self) -> float:
        """Size of the change, in the kind's unit."""

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        """Return the changed inputs."""

    def describe(self) -> str:
        """Return the change as text that fits behind `with`."""


Ladder = Sequence[HypotheticalChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberChange:
    """Base of the changes that set one number of a job's document to another."""

    subject: ClassVar[str]
    job: JobName
    before: int
    to: int

    @property
    def amount(self) -> float:
        return abs(self.to - self.before)

    def describe(self) -> str:
        return f"{self.subject} {self.to} in place of {self.before}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """With these changes, one or a pair, a new plan gives `size`.  Source: A8."""

    changes: tuple[HypotheticalChange, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Explanation of a job's size, and of what would change it.

    `decision` is that of the plan as it is, with its bottleneck; `settled` is the one with all windows off, from which
    the answers start. Without answers no change that was tried lifts it. `is_cut`: not all changes could be tried.
    """

    decision: Decision
    settled: Decision
    answers: tuple[Counterfactual, ...]
    plans: int
    is_cut: bool


def without_run_times(view: ClusterView) -> ClusterView:
    """Return the view with no minimum run time of trainers; the same view where no job has one."""
    bound = [job for job in view.jobs if job.trainer.min_run_s]
    if not bound:
        return view
    return view.evolve(jobs=[replace(job, trainer=replace(job.trainer, min_run_s=0.0)) for job in bound])


def without_windows(policy: Policy) -> Policy:
    """Return the policy with every window, pause and cap on voluntary changes off."""
    return replace(
        policy,
        up_window_s=0.0,
        down_window_s=0.0,
        quiet_window_s=0.0,
        burst_window_s=0.0,
        victim_age_s=0.0,
        transfers_per_minute=NO_CAP,
        resizes_per_minute=0,
        payoff_s=0.0,
        server_moves_per_minute=0,
        server_moves_percent_per_minute=0,
        preempted_pause_s=0.0,
        observing_s=0.0,
    )
