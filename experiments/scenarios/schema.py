"""Schema of a scenario file: nodes, web load, jobs, node losses, and the arms that run it.

Times are seconds after the scenario's zero; web pods are deployed `warm_up_s` before it, so that they run when it
begins.  An unknown field is refused, and so is a pod without requests, which would fit on every node.
The models are frozen, and the rest of the experiments works with them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from autoscaler.quantities import parse_cpu_m, parse_memory_bytes


def _quantity(parse: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: parse(value) if isinstance(value, (str, int, float)) else value)


def _unique(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse a duplicate name: passes are stored by name, so one would hide another."""
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise ValueError(f"{twice} is a duplicate")
    return names


def _uniquely_named(items: tuple[Any, ...]) -> tuple[Any, ...]:
    _unique(tuple(item.name for item in items))
    return items


def _in_order(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse events out of order: each is compared with the one before."""
    for before, item in pairwise(items):
        if item.at_s <= before.at_s:
            raise ValueError(f"{item.at_s:g} s comes after {before.at_s:g} s: list events in order of time")
    return items


CpuMilli = Annotated[int, _quantity(parse_cpu_m)]
MemoryAmount = Annotated[int, _quantity(parse_memory_bytes)]
Seconds = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
WholeNumber = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Positive = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
ScenarioName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


class ScenarioModel(BaseModel):
    """No field but those that are declared; nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PodShapeSpec(ScenarioModel):
    cpu: CpuMilli
    memory: MemoryAmount
    gpu: WholeNumber = 0

    @model_validator(mode="after")
    def _check_requests(self) -> PodShapeSpec:
        if not (self.cpu or self.gpu):
            raise ValueError("requests neither cpu nor gpu; it would fit on every node")
        return self


class TrainersSpec(PodShapeSpec):
    """`static` is the fixed size in the static arm."""

    min: Positive
    max: Positive
    static: Positive
    step: Positive = 1
    powers_of_two: bool = False

    @model_validator(mode="after")
    def _has_sizes(self) -> TrainersSpec:
        if self.min > self.max:
            raise ValueError(f"min: {self.min} is above max: {self.max}")
        if self.powers_of_two and self.step > 1:
            raise ValueError("step cannot be combined with powers_of_two")
        return self


class ServersSpec(PodShapeSpec):
    count: Positive


class JobsSpec(ScenarioModel):
    """`count` equal jobs, the first at `first_s`, one every `every_s`."""

    name: ScenarioName
    count: Positive = 1
    first_s: Seconds = 0.0
    every_s: Seconds = 0.0
    trainer: TrainersSpec
    servers: ServersSpec | None = None
    master: PodShapeSpec
    priority: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    weight: Positive = 100
    samples_total: Positive | None = None


class WebStep(ScenarioModel):
    at_s: Seconds
    replicas: WholeNumber


class WebSpec(ScenarioModel):
    """A Deployment of others."""

    name: ScenarioName
    pod: PodShapeSpec
    replicas: WholeNumber
    steps: Annotated[tuple[WebStep, ...], AfterValidator(_in_order)] = ()
    priority: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0


class NodesSpec(ScenarioModel):
    count: Positive
    cpu: Annotated[CpuMilli, Field(ge=1)]  # utilisation is a part of it
    memory: MemoryAmount
    gpu: WholeNumber = 0


class NodeEvent(ScenarioModel):
    """`count` nodes, drawn from the seed, are lost, or all lost ones come back."""

    at_s: Seconds
    lose: WholeNumber = 0
    restore: bool = False

    @model_validator(mode="after")
    def _check_one_event(self) -> NodeEvent:
        if bool(self.lose) == self.restore:
            raise ValueError("give exactly one of lose: N and restore: true")
        return self


class PhysicsSpec(ScenarioModel):
    """Settings that differ from the simulator's defaults.  `drain_s`: time that a drained pod needs; its grace
    follows."""

    drain_s: Seconds = 2.0


class PolicySpec(ScenarioModel):
    """Settings that differ from the planner's defaults (`autoscaler.domain.Policy`)."""

    quiet_window_s: Seconds | None = None
    transfers_per_minute: WholeNumber | None = None
    """This number and no part of the trainers."""
    burst_window_s: Seconds | None = None
    victim_age_s: Seconds | None = None
    moves_servers: bool = False
    """The cluster can move servers and the planner does, at its default rate."""
    headroom_percent: Annotated[float, Field(ge=0, le=50)] = 0.0
    """Of the cluster's CPU, kept free in pods of the first web's shape."""


class VariantSpec(ScenarioModel):
    """One of our arms with something changed; run on fewer mixes and passes than the rest."""

    name: ScenarioName
    arm: Literal["ours-scheduler", "ours-planner"]
    physics: PhysicsSpec = PhysicsSpec()
    policy: PolicySpec = PolicySpec()
    mixes: Positive = 2
    passes: Positive = 3


class ClockSpec(ScenarioModel):
    """Instants of 2017 where they differ from the plan, in the order of the plan."""

    jobs_at_s: tuple[Seconds, ...]
    web_at_s: tuple[Seconds, ...] = ()
    jitter_s: Seconds = 0.0  # of each instant, uniformly to both sides: the passes differed


ArmName = Literal["static", "edl2017", "ours-scheduler", "ours-planner"]


class Scenario(ScenarioModel):
    """One experiment."""

    name: ScenarioName
    title: str
    until_s: Annotated[float, Field(gt=0, le=100_000)]
    measured_until_s: Annotated[float, Field(gt=0, le=100_000)]
    warm_up_s: Seconds = 30.0
    nodes: tuple[NodesSpec, ...] = ()  # none: the calibrated mixes of 2017
    web: Annotated[tuple[WebSpec, ...], AfterValidator(_uniquely_named)] = ()
    jobs: Annotated[tuple[JobsSpec, ...], Field(min_length=1), AfterValidator(_uniquely_named)]
    node_events: Annotated[tuple[NodeEvent, ...], AfterValidator(_in_order)] = ()
    arms: Annotated[tuple[ArmName, ...], Field(min_length=1), AfterValidator(_unique)]
    passes: Positive = 3
    physics: PhysicsSpec = PhysicsSpec()
    policy: PolicySpec = PolicySpec()
    published: Literal["case1", "case2"] | None = None
    clocks: dict[ArmName, ClockSpec] = {}
    takes_from_all_when_starved: bool = True
    """The algorithm of 2017 from 2017-11-08 on: when some job has only pending trainers, all jobs are candidates."""
    variants: Annotated[tuple[VariantSpec, ...], AfterValidator(_uniquely_named)] = ()
    bounds: bool = True

    @model_validator(mode="after")
    def _is_consistent(self) -> Scenario:
        if self.measured_until_s > self.until_s:
            raise ValueError(f"measured_until_s: {self.measured_until_s:g} is after until_s: {self.until_s:g}")
        jobs = sum(spec.count for spec in self.jobs)
        steps = sum(len(web.steps) for web in self.web)
        for arm, clock in self.clocks.items():
            if len(clock.jobs_at_s) != jobs:
                raise ValueError(f"clocks.{arm}.jobs_at_s: {len(clock.jobs_at_s)} instants for {jobs} jobs")
            if len(clock.web_at_s) != steps:
                raise ValueError(f"clocks.{arm}.web_at_s: {len(clock.web_at_s)} instants for {steps} steps")
        return self
