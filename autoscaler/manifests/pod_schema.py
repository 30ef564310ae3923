"""Schema of the part of a PodTemplateSpec that a process on this machine can honour.

Kubernetes' fields are of three sorts: honoured (declared here); ignored with a notice, since they mean nothing to a
process (`ignored_fields`: images, probes, affinities, volumes); and refused, since a process without them is not what
the file contains (more containers, `envFrom`).  A name that Kubernetes does not know is refused as a misspelling.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from autoscaler.quantities import parse_count, parse_cpu_m, parse_memory_bytes

Number = str | int | float
"""As YAML gives a quantity: `500m`, 2 or 0.5."""

LONGEST_GRACE_S: Final = 3_600
"""Longest grace period, one hour: a longer one would block the node."""


def _quantity(parse: Any) -> BeforeValidator:
    def check(value: Any) -> int:
        if not isinstance(value, (str, int, float)):
            problem = "is not a quantity; write a number with an optional unit, such as 500m, 2, 512Mi"
            raise ValueError(problem)  # noqa: TRY004 - pydantic collects ValueErrors
        return int(parse(value))

    return BeforeValidator(check)


CpuQuantity = Annotated[int, _quantity(parse_cpu_m)]
MemoryQuantity = Annotated[int, _quantity(parse_memory_bytes)]
CountQuantity = Annotated[int, _quantity(parse_count)]


def _argument(value: str) -> str:
    if "\0" in value:
        raise ValueError("contains a NUL character, which a process cannot get")
    return value


Argument = Annotated[str, AfterValidator(_argument)]


class StrictModel(BaseModel):
    """A mapping whose every key is known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, populate_by_name=False)


class EnvVar(StrictModel):
    name: str = Field(min_length=1)
    value: str = ""


class Port(StrictModel):
    container_port: int = Field(alias="containerPort", ge=1, le=65535)
    name: str = ""
    protocol: str = "TCP"


class ResourceAmounts(StrictModel):
    """Requests or limits."""

    cpu: CpuQuantity | None = None
    memory: MemoryQuantity | None = None
    gpu_count: CountQuantity | None = Field(default=None, alias="nvidia.com/gpu")


class ResourceNeeds(StrictModel):
    requests: ResourceAmounts = ResourceAmounts()
    limits: ResourceAmounts = ResourceAmounts()


class Container(StrictModel):
    name: str = Field(min_length=1)
    command: tuple[Argument, ...] = ()
    args: tuple[Argument, ...] = ()
    env: tuple[EnvVar, ...] = ()
    ports: tuple[Port, ...] = ()
    working_dir: str | None = Field(default=None, alias="workingDir")
    resources: ResourceNeeds = ResourceNeeds()


class PodSpecModel(StrictModel):
    containers: tuple[Container, ...] = Field(min_length=1, max_length=1)
    grace_s: float = Field(default=30.0, alias="terminationGracePeriodSeconds", ge=0, le=LONGEST_GRACE_S)
    priority_class: str | None = Field(default=None, alias="priorityClassName")


class PodMetaModel(StrictModel):
    pass


class PodTemplateModel(StrictModel):
    metadata: PodMetaModel = PodMetaModel()
    spec: PodSpecModel
