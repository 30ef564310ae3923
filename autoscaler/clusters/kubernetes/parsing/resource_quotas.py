"""ResourceQuota -> domain Quota: what it limits, and which of EDL's pods it counts (`beside-the-scheduler.md` 19).

A quota counts a pod if all of its scopes match, as in the API server's admission.  EDL's pods always have a priority
class: their job's for core, one for each grade of surplus (with `reclaim: planner` one for all).  The other scopes
match traits of a role's template (`traits_of`).  Limits (`limits.cpu`) are left to the API server: a refused creation
is retried after a pause (`create_backoff`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from autoscaler.clusters.kubernetes.objects.fields import Raw, integer, part, parts, text
from autoscaler.clusters.kubernetes.objects.resource_amounts import GPU, amount_of
from autoscaler.clusters.kubernetes.parsing.priority_classes import LEVEL_SURPLUS, surplus_class
from autoscaler.domain import Quota, QuotaLimit, Reclaim, Trait
from autoscaler.planner.working_copy.grades import GRADES
from autoscaler.quantities import parse_quantity

_Line: TypeAlias = tuple[str, frozenset[str]]  # an operator upon classes, and what it names
_Scope: TypeAlias = tuple[str, str, frozenset[str]]

_PREFIX: Final = "requests."
_ALSO_REQUESTS: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_BY_CLASS: Final = "PriorityClass"
_CLASS_IN_LIST: Final = frozenset({"In", "DoesNotExist"})
"""Operators that match pods of the listed classes; all others match pods of no listed class.

DoesNotExist lists none, and so matches no pod of EDL's.
"""

_TRAITS: Final = {trait.value: trait for trait in Trait}
_OPPOSITES: Final = {"NotBestEffort": Trait.BEST_EFFORT, "NotTerminating": Trait.TERMINATING}


def parse_quota(raw: Raw, reclaim: Reclaim) -> Quota | None:
    """Return the quota; None for one that counts no pod of EDL.  A quota without a status has no capacity left."""
    limits = tuple(_limits(part(raw, "spec", "hard"), part(raw, "status", "used")))
    scopes = _scopes(part(raw, "spec"))
    named = {scope for scope, _, _ in scopes}
    if not limits or not named <= {_BY_CLASS, *_TRAITS, *_OPPOSITES}:
        return None  # a scope of volume claims, not of pods
    lines = [(operator, values) for scope, operator, values in scopes if scope == _BY_CLASS]
    listed = [values for operator, values in lines if operator in _CLASS_IN_LIST]
    core, grades = frozenset.intersection(*listed) if listed else None, _grades(lines, reclaim)
    if core is not None and grades is not None and not (core or grades):
        return None
    return Quota(
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        limits=limits,
        core_classes=core,
        core_classes_not=frozenset[str]().union(
            *(values for operator, values in lines if operator not in _CLASS_IN_LIST)
        ),
        grades=grades,
        traits=frozenset(_TRAITS[scope] for scope in named & _TRAITS.keys()),
        traits_not=frozenset(_OPPOSITES[scope] for scope in named & _OPPOSITES.keys()),
    )


def _limits(hard: Raw, used: Raw) -> Iterator[QuotaLimit]:
    for written in sorted(hard):
        name = _resource(written)
        if name is None:
            continue
        bound = amount_of(name, hard[written])
        spent = amount_of(name, used[written]) if written in used else bound
        yield QuotaLimit(resource="gpu" if name == GPU else name, hard=bound, used=spent)


def _resource(written: str) -> str | None:
    """The resource that pods request, of a quota's name for it."""
    if written == "count/pods":
        return "pods"
    name = written.removeprefix(_PREFIX)
    if name == "storage":
        return None  # a resource of volume claims, not of pods
    is_of_pods = name in _ALSO_REQUESTS or name.startswith("hugepages-") or "/" in name
    is_count = written.startswith(("count/", "limits.")) or ".storageclass.storage.k8s.io/" in written
    return name if is_of_pods and not is_count else None


def _scopes(spec: Raw) -> list[_Scope]:
    """All scopes of a quota, those of the plain list as lines of a selector."""
    lines = parts(spec, "scopeSelector", "matchExpressions")
    plain: list[_Scope] = [(scope, "Exists", frozenset()) for scope in _texts(spec.get("scopes"))]
    return plain + [(text(one, "scopeName"), text(one, "operator"), _texts(one.get("values"))) for one in lines]


def _texts(listed: object) -> frozenset[str]:
    return frozenset(one for one in listed if isinstance(one, str)) if isinstance(listed, list) else frozenset()


def _grades(lines: Iterable[_Line], reclaim: Reclaim) -> frozenset[int] | None:
    """The grades of surplus that have one of the classes; None: all."""
    all_grades = range(1, GRADES + 1)
    names = {grade: surplus_class(grade) if reclaim is Reclaim.SCHEDULER else LEVEL_SURPLUS for grade in all_grades}
    counted = frozenset(grade for grade in all_grades if all(_holds(line, names[grade]) for line in lines))
    return None if len(counted) == GRADES else counted


def _holds(line: _Line, name: str) -> bool:
    operator, values = line
    return (name in values) is (operator in _CLASS_IN_LIST)


_COUNTED: Final = ("cpu", "memory")  # what decides on the quality of service
_HOLDERS: Final = ("containers", "initContainers")
_NEVER: Final = -1


def traits_of(spec: Raw) -> frozenset[Trait]:
    """The traits of a pod of this spec, which LimitRanges have filled and `role_templates` has checked."""
    found = set[Trait]()
    if not any(parse_quantity(amount) for amount in _cpu_and_memory_amounts(spec)):
        found.add(Trait.BEST_EFFORT)
    if integer(spec, "activeDeadlineSeconds", default=_NEVER) >= 0:
        found.add(Trait.TERMINATING)
    if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec)):
        found.add(Trait.CROSS_NAMESPACE)
    return frozenset(found)


def _cpu_and_memory_amounts(spec: Raw) -> Iterator[str | int | float]:
    """All amounts of cpu and memory, of the pod as a whole and of its containers."""
    for holder in (spec, *(one for name in _HOLDERS for one in parts(spec, name))):
        for kind in ("requests", "limits"):
            amounts = part(holder, "resources", kind)
            yield from (amounts[name] for name in _COUNTED if name in amounts)


def _terms(spec: Raw) -> Iterator[Raw]:
    """All pod-affinity and anti-affinity terms, required and preferred."""
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from parts(spec, "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")
        for preferred in parts(spec, "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution"):
            yield part(preferred, "podAffinityTerm")
