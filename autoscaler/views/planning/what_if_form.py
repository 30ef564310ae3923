"""What-if changes as `edl what-if` and the page's form ask for them: checked, then made to the planner's inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from autoscaler.domain import (
    Fairness,
    Job,
    JobName,
    MasterSpec,
    NodeName,
    Resources,
    Shape,
    TrainerSpec,
    WorkloadName,
)
from autoscaler.planner.counterfactual import PlanInputs, edits
from autoscaler.planner.counterfactual.increments import format_increment
from autoscaler.quantities import (
    QuantityError,
    format_cpu,
    format_memory,
    parse_count,
    parse_cpu_m,
    parse_memory_bytes,
)

DEFAULT_POD_LIMIT: Final = 110  # the kubelet's
MOST_NODES: Final = 1_000
MOST_REPLICAS: Final = 10_000
MOST_AMOUNT: Final = 1_000_000  # millicores of a node
MOST_MEMORY: Final = 1 << 50  # bytes of a node
MOST_GPUS: Final = 1_000  # of a node
MOST_TRAINERS: Final = 1_000  # of another job
MASTER_CPU_M: Final = 100  # of another job: what an idle master needs
MASTER_MEMORY_BYTES: Final = 128 << 20
FORM_FIELDS: Final = frozenset(
    {"deployment", "replicas", "remove", "add", "cpu", "memory", "gpu", "idle"}
    | {"job_min", "job_max", "job_cpu", "job_memory", "job_gpu"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnotherJob:
    """A job that nobody has submitted: so many trainers, each of this shape, with the class that most jobs have."""

    low: int
    high: int
    trainer: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfChanges:
    """Changes by names that the inputs have.  `added`: so many nodes of this shape, with labels."""

    removed: tuple[NodeName, ...] = ()
    added: tuple[int, Resources] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    web: tuple[tuple[WorkloadName, int], ...] = ()
    reclaims_idle: bool = False
    fairness: Fairness | None = None  # None: that of the policy
    job: AnotherJob | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing would be changed."""
        return self == WhatIfChanges()


def apply_changes(inputs: PlanInputs, changes: WhatIfChanges) -> tuple[PlanInputs, Sequence[str]]:
    """Return the inputs with the changes made, and these in words.

    Raises:
        KeyError: there is no such node or Deployment.
    """
    words: list[str] = []
    for node in dict.fromkeys(changes.removed):
        inputs = edits.without_node(inputs, node)
        words.append(f"{node} gone")
    if changes.added is not None:
        count, shape = changes.added
        inputs = edits.with_nodes(inputs, shape, count, changes.labels)
        words.append(f"{count} more nodes of {format_shape(shape)}")
    for workload, count in changes.web:
        inputs = edits.with_replicas(inputs, workload, count)
        words.append(f"{count} replicas of {workload}")
    if changes.reclaims_idle:
        before = len(inputs.view.pods)
        inputs = edits.without_idle_pods(inputs)
        words.append(f"{before - len(inputs.view.pods)} pods with unused GPUs gone")
    if changes.fairness is not None:
        inputs = replace(inputs, policy=replace(inputs.policy, fairness=changes.fairness))
        words.append(f"policy.fairness {changes.fairness}")
    if changes.job is not None:
        inputs = edits.with_submission(inputs, another_job(inputs, changes.job))
        sizes = f"{changes.job.low} to {changes.job.high} trainers"
        words.append(f"another job of {sizes} of {format_shape(changes.job.trainer)}")
    return inputs, words


def another_job(inputs: PlanInputs, asked: AnotherJob) -> Job:
    """Return the job under a name that no other has, with a small master."""
    known, number = {job.name for job in inputs.view.jobs}, 1
    while (name := JobName(f"another-job-{number}")) in known:
        number += 1
    priorities = Counter(job.priority for job in inputs.view.jobs)
    priority = priorities.most_common(1)[0][0] if priorities else 0
    counts_pods = any("pods" in dict(node.allocatable.extended) for node in inputs.view.nodes)
    beside = (("pods", 1),) if counts_pods else ()
    trainer = replace(asked.trainer, extended=beside)
    master = Resources(cpu_milli=MASTER_CPU_M, memory_bytes=MASTER_MEMORY_BYTES, extended=beside)
    return Job(
        name=name,
        trainer=TrainerSpec(shape=Shape(requests=trainer), min_replicas=asked.low, max_replicas=asked.high),
        master=MasterSpec(shape=Shape(requests=master)),
        priority=priority,
    )


def format_shape(shape: Resources) -> str:
    """`16 cpu, 64Gi memory, 8 gpu`."""
    return ", ".join(format_increment(name, amount) for name, amount in shape.amounts() if name != "pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfView:
    """An answer.  `answer`: as `edl what-if -o json` prints it; None and `problem` where there is none.

    `made_by`: says of what it was made, and what was not known; `nodes` and `deployments`: the names that may be asked
    about; `problems`: what was wrong in the form, by field.
    """

    answer: Mapping[str, Any] | None
    problem: str = ""
    made_by: str = ""
    nodes: tuple[str, ...] = ()
    deployments: tuple[str, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()


def read_form(query: Mapping[str, str], inputs: PlanInputs) -> tuple[WhatIfChanges, tuple[tuple[str, str], ...]]:
    """Return the changes that a form asks for, and what is wrong with its fields, each by its name.

    Changes with which something is wrong may name what is not there.
    """
    problems: list[tuple[str, str]] = []

    def amount(field: str, parse: Callable[[str], int], most: int, written_as: Callable[[int], str] = str) -> int:
        written = query.get(field, "").strip()
        try:
            found = parse(written) if written else 0
        except QuantityError as error:
            problems.append((field, str(error)))
            return 0
        if not 0 <= found <= most:
            problems.append((field, f"at most {written_as(most)}"))
            return 0
        return found

    problems += _choice_problems(query, inputs)
    removed, web = NodeName(query.get("remove", "")), WorkloadName(query.get("deployment", ""))
    count = amount("add", parse_count, MOST_NODES)
    shape = Resources(
        cpu_milli=amount("cpu", parse_cpu_m, MOST_AMOUNT, format_cpu),
        memory_bytes=amount("memory", parse_memory_bytes, MOST_MEMORY, format_memory),
        gpu_count=amount("gpu", parse_count, MOST_GPUS),
        extended=(("pods", DEFAULT_POD_LIMIT),),
    )
    low, high = amount("job_min", parse_count, MOST_TRAINERS), amount("job_max", parse_count, MOST_TRAINERS)
    trainer = Resources(
        cpu_milli=amount("job_cpu", parse_cpu_m, MOST_AMOUNT, format_cpu),
        memory_bytes=amount("job_memory", parse_memory_bytes, MOST_MEMORY, format_memory),
        gpu_count=amount("job_gpu", parse_count, MOST_GPUS),
    )
    is_job = bool(query.get("job_min", "").strip() or query.get("job_max", "").strip())
    is_job = is_job and dict(problems).keys().isdisjoint({"job_min", "job_max"})
    if is_job and not 1 <= low <= high:
        problems.append(("job_max", "1 <= at least <= at most"))
        is_job = False
    if is_job and not (trainer.cpu_milli and trainer.memory_bytes):
        problems.append(("job_cpu", "trainers need cores and memory"))
    replicas = amount("replicas", parse_count, MOST_REPLICAS)
    if count and not problems and not (shape.cpu_milli and shape.memory_bytes):
        problems.append(("cpu", "new nodes need cores and memory"))
    changes = WhatIfChanges(
        removed=(removed,) if removed else (),
        added=(count, shape) if count else None,
        web=((web, replicas),) if web and query.get("replicas", "").strip() else (),
        reclaims_idle=query.get("idle") == "on",
        job=AnotherJob(low=low, high=high, trainer=trainer) if is_job else None,
    )
    return changes, tuple(problems)


def _choice_problems(query: Mapping[str, str], inputs: PlanInputs) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the fields that are chosen and not written."""
    removed, web = query.get("remove", ""), query.get("deployment", "")
    if removed and all(one.name != removed for one in inputs.view.nodes):
        yield "remove", "there is no such node"
    if web and all(one.name != web for one in inputs.view.workloads):
        yield "deployment", "there is no such deployment"
    if not web and query.get("replicas", "").strip():
        yield "deployment", "choose the one that is to have these replicas"
    if query.get("idle", "") not in {"", "on"}:
        yield "idle", "on, or nothing"
