"""The policy file of the operator: camelCase names of `domain.Policy`'s fields, durations as `...Seconds`.

    reclaim: scheduler
    upWindowSeconds: 3
    headroom: [{cpu: "2", memory: 4Gi, count: 3}]

The names are derived from the fields, so a new field can be set as soon as it exists.  The chart's `policy` values
have the same names (charts/edl/values.schema.json).  Unknown fields are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, get_type_hints

from autoscaler.domain import Headroom, Policy, Reclaim, ReclaimMode, Resources, Shape
from autoscaler.domain.idleness import SHORTEST_NOTICE_S
from autoscaler.errors import InvalidSpecError
from autoscaler.manifests.documents import NO_DOCUMENT, read_documents
from autoscaler.manifests.pod_fields import format_value
from autoscaler.quantities import (
    QuantityError,
    format_cpu,
    format_memory,
    parse_count,
    parse_cpu_m,
    parse_memory_bytes,
)

POLICY: Final = ("edl-system", "edl-policy")
"""Namespace and name of the ConfigMap of a release as docs/kubernetes.md installs it."""

POLICY_LABELS: Final = "app.kubernetes.io/part-of=edl"
POLICY_KEY: Final = "policy.yaml"
ELASTIC_SERVERS_KEY: Final = "elasticServers"
MOVE_SERVERS_KEY: Final = "moveServers"

LONGEST_S: Final = 31_536_000.0
"""A year; a longer duration is a mistake."""

_DEFAULTS: Final = Policy(reclaim=Reclaim.SCHEDULER)
_IRREGULAR_NAMES: Final = {"has_device_reserve": "deviceReserve", "is_frozen": "freeze"}
_AMOUNTS: Final[Mapping[str, tuple[str, Callable[[Any], int]]]] = {
    "cpu": ("cpu_milli", parse_cpu_m),
    "memory": ("memory_bytes", parse_memory_bytes),
    "gpu": ("gpu_count", parse_count),
}


def read_policy(path: Path) -> Policy:
    """Return the policy of a file; fields that it lacks have their defaults for Kubernetes.

    Raises InvalidSpecError with the field's path, or the file's.
    """
    documents, refusals = read_documents(path)
    if refusals:
        only = refusals[0]
        if only.problem == NO_DOCUMENT:
            return _DEFAULTS
        raise InvalidSpecError(f"{path}:{only.line}", only.problem, only.hint)
    if len(documents) != 1:
        raise InvalidSpecError(str(path), f"holds {len(documents)} documents", "write one")
    return parse_policy(documents[0].content)


def parse_policy(content: Mapping[str, Any]) -> Policy:
    """Return the policy of these fields.  Raises InvalidSpecError."""
    known = {public_name(field.name): field for field in fields(Policy)}
    for name in content:
        if name not in known:
            raise InvalidSpecError(f"policy.{name}", "is no field of a policy", f"one of {', '.join(sorted(known))}")
    types = get_type_hints(Policy)
    given = {
        known[name].name: _parse(f"policy.{name}", known[name], types[known[name].name], value)
        for name, value in content.items()
    }
    policy = Policy(**({"reclaim": _DEFAULTS.reclaim} | given))
    if policy.idle_reclaim is ReclaimMode.ACT and policy.idle_notice_s < SHORTEST_NOTICE_S:
        problem = f"is {policy.idle_notice_s:g}, and with idleReclaim act at least {SHORTEST_NOTICE_S:g}"
        raise InvalidSpecError("policy.idleNoticeSeconds", problem, "owners need time to say that a pod is kept")
    return policy


def policy_config_map(
    policy: Policy, *, namespace: str, elastic_servers: bool = True, moves_servers: bool = False
) -> dict[str, Any]:
    """Return a ConfigMap that holds the policy as the chart's does: commands of users read it there.

    The defaults are those of the chart's values operator.elasticServers and operator.moveServers.
    """
    key, _, value = POLICY_LABELS.partition("=")
    metadata = {"name": POLICY[1], "namespace": namespace, "labels": {key: value}}
    data = {
        POLICY_KEY: json.dumps(format_policy(policy)),
        ELASTIC_SERVERS_KEY: json.dumps(elastic_servers),
        MOVE_SERVERS_KEY: json.dumps(moves_servers),
    }
    return {"metadata": metadata, "data": data}


def format_policy(policy: Policy) -> dict[str, Any]:
    """Return the fields that `parse_policy` reads."""
    written = {public_name(field.name): getattr(policy, field.name) for field in fields(policy)}
    return written | {"headroom": [_format_headroom(one) for one in policy.headroom]}


def _format_headroom(headroom: Headroom) -> dict[str, Any]:
    requests = headroom.shape.requests
    amounts = {"cpu": requests.cpu_milli, "memory": requests.memory_bytes, "gpu": requests.gpu_count}
    shown: Mapping[str, Callable[[int], str]] = {"cpu": format_cpu, "memory": format_memory, "gpu": str}
    return {name: shown[name](amount) for name, amount in amounts.items() if amount} | {"count": headroom.count}


def public_name(field: str) -> str:
    """`up_window_s` -> `upWindowSeconds`."""
    if field in _IRREGULAR_NAMES:
        return _IRREGULAR_NAMES[field]
    words = field.removesuffix("_s").split("_")
    if field.endswith("_s"):
        words.append("seconds")
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _parse(path: str, field: Field[Any], kind: Any, value: Any) -> Any:
    if field.name == "headroom":
        return _headroom(path, value)
    if kind is bool:
        if not isinstance(value, bool):
            raise InvalidSpecError(path, f"is {value!r}", "true or false")
        return value
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        word = "off" if value is False else value  # YAML reads off as false, unless it stands in quotes
        if word not in list(kind):
            raise InvalidSpecError(path, f"is {value!r}", " or ".join(kind))
        return kind(word)
    return _number(path, field.name, value, is_integer=kind is int)


def _number(path: str, field: str, value: Any, *, is_integer: bool) -> float:
    wanted = (int,) if is_integer else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise InvalidSpecError(path, f"is {format_value(value)}", "a whole number" if is_integer else "a number")
    most = 100.0 if field.endswith("_percent") else LONGEST_S if field.endswith("_s") else 2.0**31 - 1
    least = 1.0 if field == "stale_limit_s" else 0.0
    if not least <= value <= most:  # nor is nan
        raise InvalidSpecError(path, f"is {format_value(value)}", f"{least:g} to {most:.0f}")
    return value if is_integer else float(value)


def _headroom(path: str, value: Any) -> tuple[Headroom, ...]:
    if not isinstance(value, list):
        raise InvalidSpecError(path, f"is {value!r}", "a list of {cpu, memory, gpu, count}")
    return tuple(_headroom_item(f"{path}[{number}]", item) for number, item in enumerate(value))


def _headroom_item(path: str, item: Any) -> Headroom:
    if not isinstance(item, Mapping):
        raise InvalidSpecError(path, f"is {item!r}", "cpu, memory, gpu and count")
    if unknown := next((name for name in item if name not in {*_AMOUNTS, "count"}), None):
        raise InvalidSpecError(f"{path}.{unknown}", "is no field of headroom", "cpu, memory, gpu and count")
    count = item.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10_000:
        raise InvalidSpecError(f"{path}.count", f"is {format_value(count)}", "1 to 10000")
    amounts: dict[str, int] = {}
    for name, (field, parse) in _AMOUNTS.items():
        if name in item:
            try:
                amounts[field] = parse(item[name])
            except QuantityError as error:
                raise InvalidSpecError(f"{path}.{name}", str(error)) from None
    if not any(amounts.values()):
        raise InvalidSpecError(path, "requests nothing", "cpu, memory or gpu above 0")
    requests = Resources(
        cpu_milli=amounts.get("cpu_milli", 0),
        memory_bytes=amounts.get("memory_bytes", 0),
        gpu_count=amounts.get("gpu_count", 0),
        extended=(("pods", 1),),
    )
    return Headroom(shape=Shape(requests=requests), count=count)
