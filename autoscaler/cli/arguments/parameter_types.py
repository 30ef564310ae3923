"""Parameter types of the command line: they parse what users type into values.

Durations, TYPE/NAME in kubectl's two spellings, conditions of `edl wait`, and changes of `edl what-if`: a node's shape,
a deployment's replicas, labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.quantities import QuantityError, parse_count, parse_cpu_m, parse_duration_s, parse_memory_bytes

if TYPE_CHECKING:  # the domain is not for --help
    from autoscaler.domain import Resources

CONDITIONS: Final = (
    *("Running", "Completed", "Failed", "Suspended", "Ready", "Available"),
    *("Admitted", "Scaled", "Progressing", "CheckpointsCurrent", "Idle", "Degraded"),
)
"""Conditions of `edl wait`: four of jobs, one of pods, one of deployments, the others of jobs on a cluster."""

DEFAULT_POD_LIMIT: Final = 110  # the kubelet's
_HOST: Final = re.compile(  # a name of labels, or an address of IPv6
    r"([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?|\[?[0-9a-fA-F.]*:[0-9a-fA-F:.]*(%[A-Za-z0-9._-]+)?\]?"
)
_AMOUNT: Final = re.compile(r"(?P<amount>[0-9.]+)(?P<unit>cpu|m|[KMGTPE]i?|gpu)?")
_SHAPE_HINT: Final = "write it as 16cpu,64Gi,8gpu, or cpu=16,memory=64Gi,example.com/fpga=2"


class Duration(click.ParamType[float]):
    """`30s`, `5m`, `1h30m`, or a bare number of seconds; a float of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration_s(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HostPort(click.ParamType[tuple[str, int]]):
    """`127.0.0.1:9464` or `[::1]:9464`: an address, to listen at it or to reach it; port 0: any that is free."""

    name = "host:port"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> tuple[str, int]:
        """See click."""
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not _HOST.fullmatch(host) or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            self.fail(f"{value} is no address: write HOST:PORT, as in 127.0.0.1:9464", param, context)
        return host.strip("[]"), int(port)


def split_target(arguments: Sequence[str], *, needs_name: bool) -> tuple[str, str]:
    """Type and name of TYPE/NAME, TYPE NAME, or TYPE alone (name empty).  Raises click.UsageError."""
    kind, _, name = arguments[0].partition("/") if arguments else ("", "", "")
    rest = list(arguments[1:])
    if not name and rest:
        name = rest.pop(0)
    if not kind or rest or (needs_name and not name):
        raise click.UsageError("name one thing as TYPE/NAME or TYPE NAME, for example tj/digits")
    return kind, name


def parse_condition(text: str) -> str:
    """`completed` of `condition=Completed`, or `delete`.  Raises click.UsageError."""
    wanted = text.removeprefix("condition=").lower()
    known = {name.lower() for name in CONDITIONS} | {"complete"}
    if text == "delete" or (text.startswith("condition=") and wanted in known):
        return wanted
    raise click.UsageError(f"write --for=condition=NAME or --for=delete; NAME is one of {', '.join(CONDITIONS)}")


# ---- what-if --------------------------------------------------------------------------------------------------------


class NodeShape(click.ParamType["Resources"]):
    """`16cpu,64Gi,8gpu` or `cpu=16,memory=64Gi,gpu=8`: allocatable resources of a node, and 110 pods."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Resources:
        from autoscaler.domain import Resources  # noqa: PLC0415 - not for --help

        amounts: dict[str, int] = {}
        for part in str(value).split(","):
            try:
                name, amount = _amount(part.strip())
            except QuantityError as error:
                self.fail(f"{part!r}: {error}; {_SHAPE_HINT}", param, ctx)
            if name in amounts:
                self.fail(f"{value!r} names {name} twice; {_SHAPE_HINT}", param, ctx)
            amounts[name] = amount
        if not any(amounts.values()):
            self.fail(f"{value!r} has no resources; {_SHAPE_HINT}", param, ctx)
        extended = {"pods": DEFAULT_POD_LIMIT} | {k: v for k, v in amounts.items() if k not in {"cpu", "memory", "gpu"}}
        return Resources(
            cpu_milli=amounts.get("cpu", 0),
            memory_bytes=amounts.get("memory", 0),
            gpu_count=amounts.get("gpu", 0),
            extended=tuple(extended.items()),
        )


def _amount(part: str) -> tuple[str, int]:
    """Name and amount of one resource of a shape.  Raises QuantityError."""
    name, named, text = part.partition("=")
    if not named:
        match = _AMOUNT.fullmatch(part)
        if match is None or not match["unit"]:
            raise QuantityError("is not an amount with a unit")
        unit = match["unit"]
        name = unit if unit in {"cpu", "gpu"} else "cpu" if unit == "m" else "memory"
        text = part if unit not in {"cpu", "gpu"} else match["amount"]
    match name:
        case "cpu":
            return name, parse_cpu_m(text)
        case "memory":
            return name, parse_memory_bytes(text)
        case "gpu" | "nvidia.com/gpu":
            return "gpu", parse_count(text)
        case _:
            return name, parse_count(text)


class WebSize(click.ParamType["tuple[str, int]"]):
    """`nginx=400`, or `400` where there is one deployment; as (name or "", replicas)."""

    name = "[name=]replicas"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, _, number = str(value).rpartition("=")
        if not re.fullmatch(r"[0-9]{1,6}", number) or (not name and "=" in str(value)):
            self.fail(f"{value!r} is not a number of replicas; write 400, or nginx=400", param, ctx)
        return name.removeprefix("deployment/"), int(number)


class Label(click.ParamType["tuple[str, str]"]):
    """`zone=a`, as (key, value)."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not a label; write zone=a", param, ctx)
        return key, text
