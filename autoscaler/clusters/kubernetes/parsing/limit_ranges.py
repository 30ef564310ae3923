"""LimitRanges: what the API server will fill into new pods, and which pods it will refuse.

A plan must rest neither on a smaller pod than the one that admission creates, nor on a pod that it refuses
(`beside-the-scheduler.md` 9 and 19).  As the plug-in LimitRanger does: defaults fill in requests and limits of each
container, then bounds apply to each container and to the whole pod.  Of several LimitRanges with defaults for one
resource the server applies any; EDL assumes the first by name.  Bounds for volume claims do not concern pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, part, parts, text
from autoscaler.clusters.kubernetes.objects.resource_amounts import AmountsByName, amounts_of
from autoscaler.clusters.kubernetes.parsing.pod_requests import of_containers
from autoscaler.quantities import QuantityError, parse_quantity

_HOLDERS: Final = ("containers", "initContainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBounds:
    """One line of a LimitRange: `minimum` and `maximum` by resource as written, `ratio` of limit to request."""

    source: str
    is_of_pod: bool
    minimum: tuple[tuple[str, str], ...] = ()
    maximum: tuple[tuple[str, str], ...] = ()
    ratio: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLimits:
    """All LimitRanges of one namespace.  Defaults are by resource, as written."""

    requests: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    bounds: tuple[LimitBounds, ...] = ()

    def fill(self, spec: Raw) -> Raw:
        """Return the pod's spec as the server stores it."""
        if not self.requests and not self.limits:
            return spec
        filled = {holder: [self._filled(one) for one in parts(spec, holder)] for holder in _HOLDERS if holder in spec}
        return {**spec, **_with_own_requests(spec), **filled}

    def _filled(self, container: Raw) -> Raw:
        requests, limits = part(container, "resources", "requests"), part(container, "resources", "limits")
        resources = {
            **part(container, "resources"),
            "requests": {**self.requests, **limits, **requests},  # a limit without a request is the request
            "limits": {**self.limits, **limits},
        }
        return {**container, "resources": resources}

    def find_problem(self, spec: Raw, path: str) -> str:
        """Return why the server will refuse a pod of this spec, with the field's path; empty if it will not."""
        if not self.bounds:
            return ""
        return next(self._refusals(self.fill(spec), path), "")

    def _refusals(self, spec: Raw, path: str) -> Iterator[str]:
        of_pod = _resources_of_pod(spec)
        of_each = [
            (f"{path}.{holder}[{number}].resources", _resources(container))
            for holder in _HOLDERS
            for number, container in enumerate(parts(spec, holder))
        ]
        own_requests, own_limits = _resources(spec)
        for where, (requests, limits) in of_each:
            for name in _above(requests, limits):
                yield f"{where}: requests.{name} is above limits.{name}, which a LimitRange fills in"
            for name in _above(limits, own_limits):
                yield f"{where}: limits.{name}, which a LimitRange fills in, is above the pod's own limit"
        for name in _above(of_containers(spec), own_requests):
            yield f"{path}.resources: requests.{name} is less than the containers' requests after LimitRange defaults"
        for bounds in self.bounds:
            for where, (requests, limits) in [(path, of_pod)] if bounds.is_of_pod else of_each:
                for violation in _exceeded(bounds, requests, limits):
                    yield f"{where}: {violation} (LimitRange {bounds.source})"


NO_LIMITS: Final = PodLimits()


def parse_limit_ranges(raws: Iterable[Raw]) -> dict[str, PodLimits]:
    """Return the limits of each namespace that has LimitRanges."""
    by_namespace: dict[str, list[Raw]] = {}
    for raw in sorted(raws, key=lambda raw: text(raw, "metadata", "name")):
        by_namespace.setdefault(text(raw, "metadata", "namespace"), []).append(raw)
    return {namespace: _limits_of(ranges) for namespace, ranges in by_namespace.items()}


def _limits_of(ranges: Iterable[Raw]) -> PodLimits:
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    bounds: list[LimitBounds] = []
    for raw in ranges:
        for line in parts(raw, "spec", "limits"):
            kind = text(line, "type")
            if kind not in {"Container", "Pod"}:
                continue
            if kind == "Container":
                requests = {**part(line, "defaultRequest"), **requests}
                limits = {**part(line, "default"), **limits}
            bounds.append(
                LimitBounds(
                    source=text(raw, "metadata", "name"),
                    is_of_pod=kind == "Pod",
                    minimum=_pairs(line, "min"),
                    maximum=_pairs(line, "max"),
                    ratio=_pairs(line, "maxLimitRequestRatio"),
                )
            )
    return PodLimits(requests=requests, limits=limits, bounds=tuple(bounds))


def _pairs(line: Raw, name: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((resource, str(value)) for resource, value in part(line, name).items()))


def _resources(container: Raw) -> tuple[AmountsByName, AmountsByName]:
    resources = part(container, "resources")
    return amounts_of(part(resources, "requests")), amounts_of(part(resources, "limits"))


def _with_own_requests(spec: Raw) -> Raw:
    """The pod's own requests as the server settles them before admission: its limits, or its containers' requests."""
    limits, requests = part(spec, "resources", "limits"), part(spec, "resources", "requests")
    if not limits:
        return {}
    own = of_containers(spec)
    settled = {name: f"{own[name]}{'m' if name == 'cpu' else ''}" if name in own else limits[name] for name in limits}
    return {"resources": {**part(spec, "resources"), "requests": {**settled, **requests}}}


def _above(amounts: AmountsByName, bounds: AmountsByName) -> list[str]:
    """Return the resources whose amount exceeds its bound."""
    return sorted(name for name, amount in amounts.items() if amount > bounds.get(name, amount))


def _resources_of_pod(spec: Raw) -> tuple[AmountsByName, AmountsByName]:
    """Requests of the whole pod: its own, else the sum over its containers."""
    as_limits = {
        holder: [_with_requests(one, part(one, "resources", "limits")) for one in parts(spec, holder)]
        for holder in _HOLDERS
    }
    requests, limits = of_containers(spec), of_containers(as_limits)
    own_requests, own_limits = _resources(spec)
    return requests | own_requests, limits | own_limits


def _with_requests(container: Raw, requests: Raw) -> Raw:
    return {**container, "resources": {"requests": requests}}


def _exceeded(bounds: LimitBounds, requests: AmountsByName, limits: AmountsByName) -> Iterator[str]:
    """Yield the violations of one line; like the server, it requires an amount for each bounded resource."""
    for name, written in bounds.minimum:
        least = amounts_of({name: written})[name]
        if requests.get(name, -1) < least:
            yield f"requests.{name} is below the minimum, {written}" if name in requests else f"requests no {name}"
        elif limits.get(name, least) < least:
            yield f"limits.{name} is below the minimum, {written}"
    for name, written in bounds.maximum:
        most = amounts_of({name: written})[name]
        if name not in limits:
            yield f"has no limits.{name}; the maximum is {written}"
        elif max(limits[name], requests.get(name, 0)) > most:
            yield f"{name} is above the maximum, {written}"
    for name, written in bounds.ratio:
        request, limit = requests.get(name, 0), limits.get(name, 0)
        if not request or not limit or limit > request * _number(written):
            yield f"limits.{name} is more than {written} times requests.{name}, or one of the two is missing"


def _number(written: str) -> float:
    try:
        return float(parse_quantity(written))
    except QuantityError:
        return 0.0
