"""TrainingJob -> KubeJob -> the planner's Job.

Sizes and policies follow `autoscaler.manifests`, the same rules as in `edl run`.  A role's template is a whole
PodTemplateSpec and stays as its owner wrote it.  The API server has refused most mistakes (schema and CEL); a job
stored under another definition may contain them, so everything is checked here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from autoscaler.clusters.kubernetes.objects.fields import Raw, created_at_s, integer, part, text
from autoscaler.clusters.kubernetes.objects.names import job_key
from autoscaler.clusters.kubernetes.objects.node_affinity import require_allowed_nodes
from autoscaler.clusters.kubernetes.objects.size_limits import LONGEST, TOO_LONG, beside_templates, is_longer
from autoscaler.clusters.kubernetes.parsing.limit_ranges import NO_LIMITS, PodLimits
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec
from autoscaler.clusters.kubernetes.parsing.resource_quotas import traits_of
from autoscaler.clusters.kubernetes.parsing.role_templates import FIELDS, RoleTemplate, check_template, default_master
from autoscaler.domain import Job, JobName, NodeName, Role, Shape
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests.api_types import (
    GROUP_BESIDE_SERVERS,
    MEASURED_ALONE,
    JobSpec,
    MasterRole,
    ServerRole,
    too_many_copies,
)
from autoscaler.manifests.conversion import build_server, build_spec, build_trainer
from autoscaler.manifests.document_schema import JobFields, JobMeta, MasterSizes, ServerSizes, TrainerSizes
from autoscaler.manifests.documents import format_path
from autoscaler.manifests.planner_job import NO_TRAITS, build_planner_job

_ROLE_FIELDS: Final = frozenset(FIELDS.values())
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeJob:
    """One TrainingJob as the API server has it.  `created_at_s`: Unix time; `limits`: of its namespace."""

    spec: JobSpec[RoleTemplate]
    uid: str
    generation: int
    created_at_s: float
    is_deleting: bool
    limits: PodLimits = NO_LIMITS
    key: JobName = field(init=False)  # NAMESPACE/NAME, its name in views; used by every view
    shape_cache: dict[frozenset[NodeName], Mapping[Role, Shape]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """Cache of `shapes_of` by avoided nodes; a starting job needs the shapes repeatedly."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", job_key(self.namespace, self.name))

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def namespace(self) -> str:
        return self.spec.namespace

    def template(self, role: Role) -> RoleTemplate:
        """Return the template of one of the job's roles."""
        if role is Role.MASTER:
            return self.spec.master.template
        if role is Role.SERVER and self.spec.server is not None:
            return self.spec.server.template
        assert role is Role.TRAINER, f"job {self.key} has no {role}"
        return self.spec.trainer.template

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that the job has."""
        return (Role.MASTER, *((Role.SERVER,) if self.spec.server is not None else ()), Role.TRAINER)

    @property
    def refusal(self) -> str:
        """Reason for which LimitRanges refuse its pods, with the field's path; empty if they accept them."""
        found = (
            self.limits.find_problem(self.template(role).spec, f"spec.{FIELDS[role]}.template.spec")
            for role in self.roles
        )
        return next(filter(None, found), "")


def parse_job(raw: Raw) -> KubeJob:
    """Return the job.  Raises InvalidSpecError with the path of the first invalid field, and what to write."""
    metadata, written = part(raw, "metadata"), part(raw, "spec")
    name, namespace = text(metadata, "name"), text(metadata, "namespace")
    _validate(JobMeta, {"name": name, "namespace": namespace}, "metadata")
    is_new = not part(raw, "status").get("startTime")
    if TOO_LONG in written or (is_new and is_longer(beside_templates(written), LONGEST)):
        raise InvalidSpecError("spec", f"is longer than {LONGEST:,} characters, templates aside", "shorten it")
    fields = _validate(JobFields, {k: v for k, v in written.items() if k not in _ROLE_FIELDS}, "spec")
    if fields.group is not None and written.get("parameterServer") is not None:
        raise InvalidSpecError("spec.group", *GROUP_BESIDE_SERVERS)
    if not fields.checkpoint.uri:
        hint = "use a folder or object store that all pods of the job can access, e.g. s3://bucket/digits or file:///shared/digits"
        raise InvalidSpecError("spec.checkpoint.uri", "is empty", hint)
    trainer_sizes = _validate(TrainerSizes, _sizes_of(written, "trainer"), "spec.trainer")
    if fields.group is not None and fields.group.shares == "Measured" and trainer_sizes.max_replicas == 1:
        raise InvalidSpecError("spec.group.shares", *MEASURED_ALONE)
    trainer = _template(written, Role.TRAINER, is_new=is_new)
    master_sizes = _validate(MasterSizes, _sizes_of(written, "master"), "spec.master")
    job = KubeJob(
        spec=build_spec(
            fields,
            name=name,
            namespace=namespace,
            trainer=build_trainer(trainer_sizes, trainer),
            server=_server_of(written, is_new=is_new),
            master=MasterRole(
                replicas=master_sizes.replicas,
                template=_template(written, Role.MASTER, is_new=is_new)
                if part(written, "master", "template")
                else default_master(trainer),
            ),
        ),
        uid=text(metadata, "uid"),
        generation=integer(metadata, "generation"),
        created_at_s=created_at_s(raw),
        is_deleting=bool(metadata.get("deletionTimestamp")),
    )
    to_planner_job(job, priority=0)  # the domain refuses sizes that contradict each other
    return job


def to_planner_job(
    job: KubeJob, *, priority: int, offset_s: float = 0.0, avoid: frozenset[NodeName] = frozenset()
) -> Job:
    """Return the planner's job, ACTIVE or SUSPENDED; the caller adds its runtime.

    `avoid`: nodes where its pods keep failing.  Raises InvalidSpecError for sizes that contradict each other.
    """
    return build_planner_job(
        job.spec,
        name=job.key,
        shapes=shapes_of(job, avoid=avoid),
        masters=job.spec.master.replicas,
        grace_s=job.spec.trainer.template.grace_s,
        server_grace_s=0.0 if job.spec.server is None else job.spec.server.template.grace_s,
        priority=priority,
        pinned=job.spec.trainer.replicas.pinned,
        submitted_at_s=job.created_at_s + offset_s,
        priority_class=job.spec.priority_class,
        traits={**NO_TRAITS, **{role: traits_of(job.limits.fill(job.template(role).spec)) for role in job.roles}},
    )


def shapes_of(job: KubeJob, *, avoid: frozenset[NodeName] = frozenset()) -> Mapping[Role, Shape]:
    """Return what the job's pods request, by role: equal to the shapes parsed from pods that `builders` made."""
    if (known := job.shape_cache.get(avoid)) is not None:
        return known
    specs = {role: job.limits.fill(job.template(role).spec) for role in job.roles}
    shapes = {role: shape_of_spec(require_allowed_nodes(spec, avoid=avoid)) for role, spec in specs.items()}
    if avoid:  # the nodes to avoid keep changing: keep one result beside that for all nodes
        for others in [nodes for nodes in job.shape_cache if nodes]:
            del job.shape_cache[others]
    job.shape_cache[avoid] = shapes
    return shapes


def has_devices(job: KubeJob, role: Role) -> bool:
    """True if the role's pods ask for a GPU or another device: by number, as a part of one (MIG), or by a claim."""
    requests = shapes_of(job)[role].requests
    is_named = any("/" in name for name, _ in requests.extended)
    return requests.gpu_count > 0 or is_named or bool(job.template(role).spec.get("resourceClaims"))


def _sizes_of(written: Raw, role: str) -> dict[str, Any]:
    return {name: value for name, value in part(written, role).items() if name != "template"}


def _template(written: Raw, role: Role, *, is_new: bool) -> RoleTemplate:
    field = FIELDS[role]
    return check_template(part(written, field, "template"), role, f"spec.{field}.template", job=written, is_new=is_new)


def _server_of(written: Raw, *, is_new: bool) -> ServerRole[RoleTemplate] | None:
    if written.get("parameterServer") is None:
        return None
    sizes = _validate(ServerSizes, _sizes_of(written, "parameterServer"), "spec.parameterServer")
    server = build_server(sizes, _template(written, Role.SERVER, is_new=is_new))
    if server.copies > server.replicas.maximum:
        raise InvalidSpecError("spec.parameterServer.copies", *too_many_copies(server.copies, server.replicas.maximum))
    return server


def _validate(model: type[_Model], content: Raw, path: str) -> _Model:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{path}.{format_path(first['loc'])}" if first["loc"] else path
        match first["type"]:
            case "missing":
                raise InvalidSpecError(where, "is missing") from error
            case "extra_forbidden":
                hint = "the TrainingJob CRD is newer than this operator: upgrade the operator"
                raise InvalidSpecError(where, "is a field that this operator does not know", hint) from error
            case _:
                message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
                raise InvalidSpecError(where, f"{first['input']!r} {message}") from error
