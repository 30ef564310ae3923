"""ResourceQuota -> domain Quota, as far as it binds the pods that EDL makes (`kubernetes.md` 19).

The domain's Quota is over all pods of a namespace, so a scoped one is taken when its scope holds for every pod of EDL's
(they have requests, no deadline, and a class of EDL's), and left out when it does not: a quota over one class alone is
met when a creation is refused (403, reason `Quota`; `turned_away`), never before.  Limits (`limits.cpu`) are left to
the API server for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.clusters.kubernetes.reading.amounts import GPU, amount_of
from autoscaler.clusters.kubernetes.reading.priorities import LEVEL_SURPLUS, surplus_class
from autoscaler.clusters.kubernetes.reading.raw import Raw, part, parts, text
from autoscaler.domain import Quota, QuotaLimit
from autoscaler.manifests.values import CORE_CLASS
from autoscaler.planner.grades import GRADES

_GRADED: Final = frozenset(surplus_class(grade) for grade in range(1, GRADES + 1))
_PREFIX: Final = "requests."
_ALSO_REQUESTS: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_NEVER_OURS: Final = frozenset({"Terminating", "BestEffort", "CrossNamespacePodAffinity", "VolumeAttributesClass"})


def read_quota(raw: Raw) -> Quota | None:
    """The quota; None for one that binds nothing that EDL makes.  What is not counted yet leaves no room."""
    if not _binds(part(raw, "spec")):
        return None
    limits = tuple(_limits(part(raw, "spec", "hard"), part(raw, "status", "used")))
    if not limits:
        return None
    return Quota(namespace=text(raw, "metadata", "namespace"), name=text(raw, "metadata", "name"), limits=limits)


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
        return None  # of claims, not of pods
    is_of_pods = name in _ALSO_REQUESTS or name.startswith("hugepages-") or "/" in name
    is_count = written.startswith(("count/", "limits.")) or ".storageclass.storage.k8s.io/" in written
    return name if is_of_pods and not is_count else None


def _binds(spec: Raw) -> bool:
    """Whether every scope of the quota holds for every pod of EDL's."""
    named = spec.get("scopes")
    scopes = [scope for scope in named if isinstance(scope, str)] if isinstance(named, list) else []
    if _NEVER_OURS & set(scopes):
        return False
    return all(_selects(line) for line in parts(spec, "scopeSelector", "matchExpressions"))


def _selects(line: Raw) -> bool:
    scope, operator, listed = text(line, "scopeName"), text(line, "operator"), line.get("values")
    if scope != "PriorityClass":
        return scope not in _NEVER_OURS
    values = frozenset(listed) if isinstance(listed, list) else frozenset()
    match operator:
        case "In":
            return CORE_CLASS in values and (values >= _GRADED or LEVEL_SURPLUS in values)
        case "NotIn":
            return not values & {CORE_CLASS, LEVEL_SURPLUS, *_GRADED}
        case "Exists":
            return True
        case _:
            return False
