"""What `edl what-if` is told on its command line, as values: a node's shape, a deployment's replicas, labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.quantities import QuantityError, parse_count, parse_cpu_m, parse_memory_bytes

if TYPE_CHECKING:  # the domain is not for --help
    from autoscaler.domain import Resources

PODS_OF_A_NODE: Final = 110  # the kubelet's default
_PARTS: Final = re.compile(r"(?P<amount>[0-9.]+)(?P<unit>cpu|m|[KMGTPE]i?|gpu)?")
_HINT: Final = "write it as 16cpu,64Gi,8gpu, or cpu=16,memory=64Gi,example.com/fpga=2"


class NodeShape(click.ParamType["Resources"]):
    """`16cpu,64Gi,8gpu` or `cpu=16,memory=64Gi,gpu=8`: what a node offers, and places for 110 pods."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Resources:
        from autoscaler.domain import Resources  # noqa: PLC0415 - not for --help

        amounts: dict[str, int] = {}
        for part in str(value).split(","):
            try:
                name, amount = _amount(part.strip())
            except QuantityError as error:
                self.fail(f"{part!r}: {error}; {_HINT}", param, ctx)
            if name in amounts:
                self.fail(f"{value!r} names {name} twice; {_HINT}", param, ctx)
            amounts[name] = amount
        if not any(amounts.values()):
            self.fail(f"{value!r} offers nothing; {_HINT}", param, ctx)
        extended = {"pods": PODS_OF_A_NODE} | {k: v for k, v in amounts.items() if k not in {"cpu", "memory", "gpu"}}
        return Resources(
            cpu_milli=amounts.get("cpu", 0),
            memory_bytes=amounts.get("memory", 0),
            gpu_count=amounts.get("gpu", 0),
            extended=tuple(extended.items()),
        )


def _amount(part: str) -> tuple[str, int]:
    """The resource and the amount of one part.  Raises QuantityError."""
    name, named, text = part.partition("=")
    if not named:
        match = _PARTS.fullmatch(part)
        if match is None or not match["unit"]:
            raise QuantityError("is no amount with its unit")
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
    """`nginx=400`, or `400` where there is one deployment; (name or nothing, replicas)."""

    name = "[name=]replicas"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, _, number = str(value).rpartition("=")
        if not re.fullmatch(r"[0-9]{1,6}", number) or (not name and "=" in str(value)):
            self.fail(f"{value!r} is no number of replicas; write 400, or nginx=400", param, ctx)
        return name.removeprefix("deployment/"), int(number)


class Label(click.ParamType["tuple[str, str]"]):
    """`zone=a`."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is no label; write zone=a", param, ctx)
        return key, text
