"""What a pod's spec says that the scopes of a ResourceQuota ask for, as the API server's admission finds it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.clusters.kubernetes.reading.raw import Raw, part, parts, whole
from autoscaler.domain import Trait
from autoscaler.quantities import parse_quantity

_COUNTED: Final = ("cpu", "memory")  # what decides on the quality of service
_HOLDERS: Final = ("containers", "initContainers")
_NEVER: Final = -1


def traits_of(spec: Raw) -> frozenset[Trait]:
    """The traits of a pod of this spec, which LimitRanges have filled and `templates` has checked."""
    found = set[Trait]()
    if not any(parse_quantity(amount) for amount in _asked(spec)):
        found.add(Trait.BEST_EFFORT)
    if whole(spec, "activeDeadlineSeconds", default=_NEVER) >= 0:
        found.add(Trait.TERMINATING)
    if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec)):
        found.add(Trait.CROSS_NAMESPACE)
    return frozenset(found)


def _asked(spec: Raw) -> Iterator[str | int | float]:
    """All amounts of cpu and memory, of the pod as a whole and of its containers."""
    for holder in (spec, *(one for name in _HOLDERS for one in parts(spec, name))):
        for kind in ("requests", "limits"):
            amounts = part(holder, "resources", kind)
            yield from (amounts[name] for name in _COUNTED if name in amounts)


def _terms(spec: Raw) -> Iterator[Raw]:
    """All terms of affinity to pods, required and preferred, for and against."""
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from parts(spec, "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")
        for preferred in parts(spec, "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution"):
            yield part(preferred, "podAffinityTerm")
