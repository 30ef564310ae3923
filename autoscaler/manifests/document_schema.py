"""Schema of each kind of document, field by field; `checks` has the rules between fields.

TrainingJob and LocalCluster (the virtual nodes of `edl run --cluster FILE`) are EDL's own kinds, Deployment and
PriorityClass are Kubernetes'.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from autoscaler.manifests.api_types import AUTO, DEFAULT_EFFICIENCY, MOST_COPIES, MOST_REPLICAS, TRAINERS_PER_SERVER
from autoscaler.manifests.pod_fields import format_value
from autoscaler.manifests.pod_schema import CountQuantity, CpuQuantity, MemoryQuantity, PodTemplateModel, StrictModel
from autoscaler.manifests.pod_values import DNS_SUBDOMAIN

LARGEST_INT32: Final = 2**31 - 1
SHORTEST_INTERVAL_S: Final = 0.1
"""A commit takes longer than that, so a shorter interval is a mistake."""
LONGEST_INTERVAL_S: Final = 31_536_000
"""A year."""
LONGEST_CLASS: Final = 253
MOST_SIZES: Final = 64


SCHEMES: Final = (
    *("abfs", "adl", "az", "box", "dbfs", "dropbox", "ftp", "gcs", "gdrive", "gs", "hdfs", "hf", "lakefs", "oci"),
    *("oss", "s3", "s3a", "sftp", "smb", "ssh", "tos", "webdav", "webhdfs"),
)
"""Schemes of fsspec for stores that can be written to and that several machines share."""

CHECKPOINT_URI: Final = (
    rf"^(/|file://(localhost)?/|({'|'.join(SCHEMES)})://[^/\x00-\x20\x7f])([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$"
)
"""The definition of TrainingJob (charts/edl/files/trainingjobs.yaml) has the same pattern."""

LONGEST_URI: Final = 2048
_URI_HINT: Final = (
    "use a folder or object store that all pods of the job can access, e.g. s3://bucket/digits or file:///shared/digits"
)


def _plain_integer(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("is true or false; write an integer")  # noqa: TRY004 - pydantic collects ValueErrors
    if isinstance(value, str):  # pydantic would read a number from it, which an API server does not
        raise ValueError(f"is the text {value!r}; write an integer without quotes")  # noqa: TRY004 - as above
    return value


def _plain_number(value: Any) -> Any:
    """A text may be a number here: PyYAML takes 1e3 for one."""
    if isinstance(value, bool):
        raise ValueError("is true or false; write a number")  # noqa: TRY004 - pydantic collects ValueErrors
    return value


def _number_or_auto(value: Any) -> Any:
    if value is None:
        raise ValueError("is empty; write an integer, or auto")
    if isinstance(value, str) and value != AUTO:
        raise ValueError(f"is {value!r}; write an integer, or auto")
    return None if value == AUTO else value


def check_checkpoint_uri(uri: str) -> str:
    """The URI of a checkpoint folder: an absolute path, a file URI of this host, or a store that fsspec knows.

    A relative path would be another folder to each process, and a scheme that nothing reads would fail only at the
    first checkpoint.  The libraries in the job's images are not known here.  Empty: the job names no folder.  Raises
    ValueError with what is wrong.
    """
    if not uri:
        return uri
    if len(uri) > LONGEST_URI:
        raise ValueError(f"has {len(uri)} characters, at most {LONGEST_URI} are allowed; {_URI_HINT}")
    if re.fullmatch(CHECKPOINT_URI, uri):
        return uri
    if not uri.strip():
        problem = "is blank"
    elif re.search(r"[\x00-\x1f\x7f]", uri) or uri != uri.strip():
        problem = f"{format_value(uri)} contains a control character, or a blank at its start or end"
    elif (scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", uri)) is None:
        problem = f"{format_value(uri)} is a relative path, which differs between pods"
    elif scheme[1] in {*SCHEMES, "file"}:
        problem = f"{format_value(uri)} names no folder: write {'file:///folder' if scheme[1] == 'file' else f'{scheme[1]}://bucket/folder'}"
    else:
        problem = f"{format_value(uri)} has an unknown scheme; EDL knows {', '.join(SCHEMES)}"
    raise ValueError(f"{problem}; {_URI_HINT}")


Int = Annotated[int, BeforeValidator(_plain_integer), Field(le=LARGEST_INT32)]
Float = Annotated[float, BeforeValidator(_plain_number)]
UpToAYear = Annotated[float, Field(ge=0, le=LONGEST_INTERVAL_S, allow_inf_nan=False), BeforeValidator(_plain_number)]
"""Seconds, at most a year, as the definition of TrainingJob says."""


def _no_null(value: Any) -> Any:
    if value is None:
        raise ValueError("is empty; write a value, or remove the field")
    return value


RatioOrAuto = Annotated[Int | None, BeforeValidator(_number_or_auto)]
"""An integer, or None for `auto`: EDL measures the ratio."""
NAME: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
JOB_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""JOB-master is the name of a Service, which begins with a letter."""


Size = Annotated[Int, Field(ge=1, le=MOST_REPLICAS)]


class ObjectMeta(StrictModel):
    name: str = Field(pattern=NAME, max_length=50)
    namespace: str = Field(default="default", pattern=NAME, max_length=63)


class JobMeta(ObjectMeta):
    name: str = Field(pattern=JOB_NAME, max_length=50)


class RunPolicyModel(StrictModel):
    backoff_limit: Int = Field(default=6, alias="backoffLimit", ge=0)
    active_deadline_s: Int | None = Field(default=None, alias="activeDeadlineSeconds", ge=1)
    ttl_after_finished_s: Int | None = Field(default=None, alias="ttlSecondsAfterFinished", ge=0)
    suspend: StrictBool = False


class TrainerSizes(StrictModel):
    """The trainers' fields but for the pod template, which Kubernetes and a local run read differently."""

    min_replicas: Int = Field(alias="minReplicas", ge=1)
    max_replicas: Int = Field(alias="maxReplicas", ge=1, le=MOST_REPLICAS)
    replicas: Int = Field(default=0, ge=0)
    step: Int | None = Field(default=None, ge=1)
    powers_of_two: StrictBool = Field(default=False, alias="powersOfTwo")
    sizes: Annotated[tuple[Size, ...] | None, BeforeValidator(_no_null)] = Field(
        default=None, min_length=1, max_length=MOST_SIZES
    )
    per_node: Int = Field(default=1, alias="perNode", ge=1)
    resize_cost_s: UpToAYear = Field(default=0.0, alias="resizeCostSeconds")
    min_run_s: UpToAYear = Field(default=0.0, alias="minRunSeconds")
    idle_s: UpToAYear | None = Field(default=None, alias="idleSeconds")
    efficiency: Float = Field(default=DEFAULT_EFFICIENCY, ge=0, le=1, allow_inf_nan=False)


class ServerSizes(StrictModel):
    min_replicas: Int = Field(alias="minReplicas", ge=1, le=MOST_REPLICAS)
    max_replicas: Int | None = Field(default=None, alias="maxReplicas", ge=1, le=MOST_REPLICAS)
    replicas: Int = Field(default=0, ge=0)
    trainers_per_server: RatioOrAuto = Field(default=TRAINERS_PER_SERVER, alias="trainersPerServer", ge=1)
    after_loss: Literal["RollBack", "Keep"] = Field(default="RollBack", alias="afterLoss")
    copies: Int = Field(default=1, ge=1, le=MOST_COPIES)


class MasterSizes(StrictModel):
    replicas: Int = Field(default=1, ge=1, le=3)


class TrainerModel(TrainerSizes):
    template: PodTemplateModel


class ServerModel(ServerSizes):
    template: PodTemplateModel


class MasterModel(MasterSizes):
    template: PodTemplateModel | None = None


class CheckpointModel(StrictModel):
    uri: Annotated[str, AfterValidator(check_checkpoint_uri)] = ""
    every_s: Float = Field(
        default=60.0, alias="everySeconds", ge=SHORTEST_INTERVAL_S, le=LONGEST_INTERVAL_S, allow_inf_nan=False
    )
    start: str = Field(default="", max_length=128, pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    when_unreadable: Literal["Fail", "FallBack"] = Field(default="Fail", alias="whenUnreadable")


class GroupModel(StrictModel):
    global_batch: Annotated[Int | None, BeforeValidator(_no_null)] = Field(default=None, alias="globalBatch", ge=1)
    shares: Literal["Equal", "Measured"] = "Equal"


class JobFields(StrictModel):
    """Fields of a job beside its roles."""

    priority_class: str = Field(
        default="edl-core", alias="priorityClassName", pattern=DNS_SUBDOMAIN, max_length=LONGEST_CLASS
    )
    weight: Int = Field(default=100, ge=1)
    mode: Literal["manage", "observe"] = "manage"
    queue_name: str = Field(default="", alias="queueName", max_length=LONGEST_CLASS)
    run_policy: RunPolicyModel = Field(default=RunPolicyModel(), alias="runPolicy")
    checkpoint: CheckpointModel = CheckpointModel()
    group: Annotated[GroupModel | None, BeforeValidator(_no_null)] = None


class TrainingJobSpec(JobFields):
    trainer: TrainerModel
    server: ServerModel | None = Field(default=None, alias="parameterServer")
    master: MasterModel = MasterModel()


class TrainingJobModel(StrictModel):
    api_version: Literal["edl.dev/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["TrainingJob"]
    metadata: JobMeta
    spec: TrainingJobSpec


class DeploymentSpec(StrictModel):
    replicas: Int = Field(default=1, ge=0, le=MOST_REPLICAS)
    template: PodTemplateModel


class DeploymentModel(StrictModel):
    api_version: Literal["apps/v1"] = Field(alias="apiVersion")
    kind: Literal["Deployment"]
    metadata: ObjectMeta
    spec: DeploymentSpec


class PriorityClassModel(StrictModel):
    api_version: Literal["scheduling.k8s.io/v1"] = Field(alias="apiVersion")
    kind: Literal["PriorityClass"]
    metadata: ObjectMeta
    value: Annotated[int, BeforeValidator(_plain_integer)] = Field(ge=-(2**31), le=1_000_000_000)
    global_default: StrictBool = Field(default=False, alias="globalDefault")
    preemption_policy: Literal["Never", "PreemptLowerPriority"] = Field(
        default="PreemptLowerPriority", alias="preemptionPolicy"
    )


class NodeModel(StrictModel):
    name: str = Field(pattern=NAME, max_length=50)
    count: Int = Field(default=1, ge=1, le=1000)
    cpu: CpuQuantity
    memory: MemoryQuantity
    gpu_count: CountQuantity = Field(default=0, alias="gpu")
    pod_limit: CountQuantity = Field(default=110, alias="pods")


class LocalClusterSpec(StrictModel):
    nodes: tuple[NodeModel, ...] = Field(min_length=1)


class LocalClusterModel(StrictModel):
    api_version: Literal["edl.dev/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["LocalCluster"]
    metadata: ObjectMeta
    spec: LocalClusterSpec


KINDS: Final[dict[str, type[StrictModel]]] = {
    "TrainingJob": TrainingJobModel,
    "Deployment": DeploymentModel,
    "PriorityClass": PriorityClassModel,
    "LocalCluster": LocalClusterModel,
}
