"""Values of a user's files: jobs, web Deployments, priority classes, and the virtual nodes of a local cluster.

Everything here has been checked; defaults are filled in.  `document_schema` is the shape of the YAML, `parsing`
builds these values from files, `planner_job` converts a job for the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

from autoscaler.domain import Resources
from master.api.identities import WhenUnreadable

MOST_REPLICAS: Final = 10_000
"""JOB-trainer-9999 is still a legal pod name."""

MOST_COPIES: Final = 2
"""Most copies of each bucket: one at its owner, one at its backup (ADR 0318)."""

AUTO: Final = "auto"
TRAINERS_PER_SERVER: Final = 4
DEFAULT_EFFICIENCY: Final = 0.0
"""Default of the ratio, and its first value while EDL measures it."""

CORE_CLASS: Final = "edl-core"
CORE_PRIORITY: Final = 0
"""Value of `edl-core`, the cluster's default: pods of equal priority never preempt each other (beside-the-scheduler.md
3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """One container, run as a process.  An empty command means the role's own program."""

    container: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    working_dir: str | None
    requests: Resources
    container_port: int | None
    grace_s: float
    priority_class: str | None


Template = TypeVar("Template")


class Mode(StrEnum):
    """EDL acts on a job, or only reports what it would do (`beside-the-scheduler.md` 20)."""

    MANAGE = "manage"
    OBSERVE = "observe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaBounds:
    """Bounds of a replica count.  `pinned` 0: EDL decides within them (beside-the-scheduler.md 20)."""

    minimum: int
    maximum: int
    pinned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRole(Generic[Template]):
    """Trainers: the job is resized by `step`, by doubling and halving, or from one of `sizes` to another.

    `per_node` of them share a node.
    """

    replicas: ReplicaBounds
    step: int
    powers_of_two: bool
    sizes: tuple[int, ...] = ()  # allowed numbers instead of steps
    per_node: int
    resize_cost_s: float
    min_run_s: float = 0.0
    idle_s: float | None = None  # without a batch for so long a trainer is idle; 0: never; None: as the policy says
    efficiency: float = 0.0  # least that each further trainer must add, in trainers; 0: not asked
    template: Template


class AfterServerLoss(StrEnum):
    """Reaction of the other servers to the loss of one with its buckets: EDL_AFTER_LOSS of the master (ADR 0317)."""

    ROLL_BACK = "RollBack"
    KEEP = "Keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRole(Generic[Template]):
    """Parameter servers.  `copies`: of each bucket, on as many servers; with fewer servers there are fewer.

    `is_ratio_measured`: `trainersPerServer: auto`; the number beside it is the first value (`jobs.server_ratio`).
    """

    replicas: ReplicaBounds
    trainers_per_server: int
    is_ratio_measured: bool = False
    after_loss: AfterServerLoss = AfterServerLoss.ROLL_BACK
    copies: int = 1
    template: Template

    @property
    def may_be_short_of_copies(self) -> bool:
        """True if there may be fewer servers than copies even when no server is lost."""
        return (self.replicas.pinned or self.replicas.minimum) < self.copies


def too_many_copies(copies: int, most_servers: int) -> tuple[str, str]:
    """Problem and hint for more copies than there can be servers."""
    most = "one server" if most_servers == 1 else f"{most_servers} servers"
    return f"is {copies}, but the job has at most {most}", f"raise maxReplicas to {copies} or more, or remove copies"


class GroupShares(StrEnum):
    """Shares of a step's records that a group's trainers have: EDL_SHARES of the master (ADR 0296)."""

    EQUAL = "Equal"
    MEASURED = "Measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """Every trainer of the job holds the model, and all make each step together (protocol-collective.md 63).

    `global_batch`: records of a step over all trainers, where the script names no number itself; None: it has to.
    """

    global_batch: int | None = None
    shares: GroupShares = GroupShares.EQUAL


MEASURED_ALONE: Final = (
    "is Measured, but the job has at most one trainer",
    "raise spec.trainer.maxReplicas, or remove shares: a trainer alone has every record",
)

GROUP_BESIDE_SERVERS: Final = (
    "cannot be combined with parameterServer",
    "remove one of the two: either every trainer holds the model, or the servers do",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterRole(Generic[Template]):
    replicas: int
    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Run policy with the field names of Kubeflow's: when a job fails, when it is deleted, whether it may start."""

    backoff_limit: int  # the failure in a row that fails the job; 0 means 1 (batch/v1 counts retries: one less)
    active_deadline_s: float | None
    ttl_after_finished_s: float | None
    suspend: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """Checkpoints of a job.  An empty `uri` means a folder of the run's own.

    `start`: the checkpoint to restore, a manifest's id or `fresh`; empty: the folder's HEAD.  `when_unreadable`:
    what happens if that one cannot be read.
    """

    uri: str
    every_s: float
    start: str = ""
    when_unreadable: WhenUnreadable = WhenUnreadable.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(Generic[Template]):
    """A job; `Template` is the type of a pod template in the place where it runs."""

    name: str
    namespace: str
    priority_class: str
    weight: int
    run_policy: RunPolicy
    trainer: TrainerRole[Template]
    server: ServerRole[Template] | None
    group: GroupSpec | None = None
    master: MasterRole[Template]
    checkpoint: CheckpointSpec
    mode: Mode = Mode.MANAGE
    queue_name: str = ""

    @property
    def notice_of_no_model(self) -> str:
        """Notice to the owner of a job that only shares out records; empty for other jobs.

        One trainer may keep the model itself (rule 35); its script alone knows whether it does.
        """
        most = self.trainer.replicas.maximum
        if self.group is not None or self.server is not None or most == 1:
            return ""
        return (
            f"up to {most} trainers, no group and no parameterServer: trainers only share out records, and no model is "
            "kept; add group or parameterServer, or set maxReplicas to 1 for a script that keeps its model itself"
        )


TrainingJob: TypeAlias = JobSpec[PodTemplate]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeployment:
    """Replicas of one web pod; `edl scale` changes their number."""

    name: str
    namespace: str
    replicas: int
    template: PodTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    name: str
    value: int
    is_default: bool = False
    may_preempt: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualNode:
    """One node of a local cluster."""

    name: str
    capacity: Resources  # `extended` has the pod limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """All documents of one run, accepted or refused as a whole.

    `notices`: fields and objects that EDL ignores; `contents`: the documents as written, without those fields.
    """

    jobs: tuple[TrainingJob, ...] = ()
    deployments: tuple[WebDeployment, ...] = ()
    classes: tuple[PriorityClass, ...] = ()
    nodes: tuple[VirtualNode, ...] = ()
    notices: tuple[str, ...] = ()
    contents: tuple[Mapping[str, Any], ...] = ()

    def priority_of(self, class_name: str | None) -> int:
        """Value of a priority class; without a name that of the cluster's default class."""
        default = next((c.value for c in self.classes if c.is_default), CORE_PRIORITY)
        if class_name is None or class_name == CORE_CLASS:
            return default
        return next(c.value for c in self.classes if c.name == class_name)
