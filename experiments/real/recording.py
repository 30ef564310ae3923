"""Recording of a real pass, one JSON file: every pod's instants, the machine's load, and the simulator's metrics.

Times are seconds after the scenario's zero, as observed by a watch of the API.  Metrics and curves are not kept; they
are computed from the pods (`measurement`), as for a simulated pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from autoscaler.domain import Resources, Role, Tier
from experiments.errors import RefusedInputError
from experiments.running.result_store import RESULTS, digest, write_atomically
from experiments.running.tasks import Task

REAL: Final = RESULTS / "real"
MILLISECONDS: Final = 3  # digits: a watch is no more exact

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RealPod:
    """One pod; an instant that never came is None.  `owner`: its job or Deployment, empty for a system pod."""

    name: str
    owner: str
    role: Role
    tier: Tier
    node: str
    requests: Resources
    created_at_s: float
    bound_at_s: float | None
    running_at_s: float | None
    terminating_at_s: float | None  # its deletion began
    gone_at_s: float | None
    was_drained: bool | None  # it ended by itself within its grace; None: it has not ended
    is_preempted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """The machine of the pass, and its load."""

    about: Mapping[str, str | int]
    cores: int
    load_mean: float  # processes that want a core, one-minute mean
    load_max: float
    busy_percent: float  # of all cores, by any process
    saturated_percent: float  # of the seconds: no core idle
    cpu_s: Mapping[str, float]  # by program of the pass
    others_cpu_s: float  # of whatever else ran on the machine
    late_s: float  # the largest delay of a step of the scenario
    late_beats_percent: float  # of the seconds, the driver woke more than half a second late


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Simulated passes of the same setting: the same seed first, and others for the spread by chance."""

    metrics: tuple[Mapping[str, float], ...]
    curves: Mapping[str, Any]  # of the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One real pass.  `remarks`: irregularities, as text."""

    version: str
    scenario: str  # digest
    experiment: str
    mix: str
    arm: str
    seed: int
    begun: str  # UTC
    machine: MachineUse
    evictions: Mapping[str, int]  # of trainers, by who made them leave, as the operator counted; empty: 2017
    remarks: tuple[str, ...]
    pods: tuple[RealPod, ...]
    simulated: Simulated


def file_of(task: Task, folder: Path = REAL) -> Path:
    """Return the file of a task's pass."""
    return folder / f"{task.setting.scenario.name}.{task.arm}.json"


def has(task: Task, version: str, folder: Path = REAL) -> bool:
    """True if this version has a recording of the pass; an unreadable file counts as none."""
    try:
        kept = read_recording(file_of(task, folder))
    except RefusedInputError:
        return False
    expected = (version, digest(task.setting.scenario), task.mix, task.setting.seed)
    return (kept.version, kept.scenario, kept.mix, kept.seed) == expected


def write_recording(recording: Recording, file: Path) -> None:
    """Write the file atomically, one pod per line.

    Raises:
        RefusedInputError: it cannot be written; nothing is left behind.
    """
    head = {field.name: getattr(recording, field.name) for field in fields(recording) if field.name != "pods"}
    document = json.dumps(head, default=asdict)[:-1]
    lines = ",\n".join(json.dumps(row_of(pod)) for pod in recording.pods)
    try:
        write_atomically(file, f'{document}, "pods": [\n{lines}\n]}}\n')
    except OSError as error:
        raise RefusedInputError(
            file, "", f"cannot be written: {error.strerror}", "free space, or fix permissions"
        ) from error


def read_recording(file: Path) -> Recording:
    """Return the pass in a file.  Raises RefusedInputError: it is missing or invalid."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        pods = tuple(pod_of(row) for row in document.pop("pods"))
        simulated = document.pop("simulated")
        return Recording(
            machine=MachineUse(**document.pop("machine")),
            simulated=Simulated(metrics=tuple(simulated["metrics"]), curves=simulated["curves"]),
            remarks=tuple(document.pop("remarks")),
            pods=pods,
            **document,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedInputError(
            file, "", f"is not a stored pass: {error}", "remove it and run the pass again"
        ) from error


def list_recordings(folder: Path = REAL) -> list[Recording]:
    """Return all kept passes by the names of their files.  Raises RefusedInputError."""
    return [read_recording(file) for file in sorted(folder.glob("*.json"))]


def row_of(pod: RealPod) -> list[Any]:
    """Return the pod as a row in the order of its fields; as an object it would be three times as long."""
    wants = pod.requests
    instants = (pod.created_at_s, pod.bound_at_s, pod.running_at_s, pod.terminating_at_s, pod.gone_at_s)
    return [
        pod.name,
        pod.owner,
        pod.role.value,
        pod.tier.value,
        pod.node,
        [wants.cpu_milli, wants.memory_bytes, wants.gpu_count],
        *(at_s if at_s is None else round(at_s, MILLISECONDS) for at_s in instants),
        pod.was_drained,
        pod.is_preempted,
    ]


def pod_of(row: list[Any]) -> RealPod:
    """Return the pod of a row.  Raises ValueError or TypeError: it has other fields."""
    name, owner, role, tier, node, (cpu_milli, memory_bytes, gpu_count), *instants, was_drained, is_preempted = row
    created_at_s, bound_at_s, running_at_s, terminating_at_s, gone_at_s = instants
    return RealPod(
        name=name,
        owner=owner,
        role=Role(role),
        tier=Tier(tier),
        node=node,
        requests=Resources(cpu_milli=cpu_milli, memory_bytes=memory_bytes, gpu_count=gpu_count),
        created_at_s=created_at_s,
        bound_at_s=bound_at_s,
        running_at_s=running_at_s,
        terminating_at_s=terminating_at_s,
        gone_at_s=gone_at_s,
        was_drained=was_drained,
        is_preempted=is_preempted,
    )
