"""PriorityClasses: their values, and whether EDL's own classes have the right ones (`beside-the-scheduler.md` 3).

Pods carry their value (`spec.priority`).  Names matter for what does not exist yet: jobs, and replicas that a
Deployment will have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from autoscaler.clusters.kubernetes.objects.fields import Raw, integer, part, text
from autoscaler.domain import Reclaim
from autoscaler.manifests.api_types import CORE_CLASS, PriorityClass
from autoscaler.planner.working_copy.grades import GRADES

EXPENDABLE: Final = -10
"""Below this value cluster-autoscaler adds no node for a pod, and removes nodes in spite of it."""

_NO_CLASS: Final = 0  # a cluster without a globalDefault gives pods without a class this value

_SYSTEM_CLASSES: Final = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClasses:
    """All classes of the cluster, by name."""

    by_name: Mapping[str, PriorityClass] = field(default_factory=dict)

    @property
    def default(self) -> int:
        """The value of a pod without a class: the globalDefault's, the lowest if two claim to be it."""
        return min((found.value for found in self.by_name.values() if found.is_default), default=_NO_CLASS)

    def value_of(self, name: str | None) -> int | None:
        """Return the value of a class; without a name the default; None for a class that does not exist."""
        if not name:
            return self.default
        found = self.by_name.get(name)
        return _SYSTEM_CLASSES.get(name) if found is None else found.value


LEVEL_SURPLUS: Final = "edl-surplus"
"""With `reclaim: planner` surplus has the value of core, so that the scheduler preempts none of it."""


def surplus_class(grade: int) -> str:
    """Return the class of a surplus trainer of this grade, 1 to 8."""
    return f"edl-surplus-{grade}"


def parse_priority_classes(raws: Iterable[Raw]) -> PriorityClasses:
    """Return the classes of a list."""
    found = [
        PriorityClass(
            name=text(raw, "metadata", "name"),
            value=integer(raw, "value"),
            is_default=raw.get("globalDefault") is True,
            may_preempt=raw.get("preemptionPolicy") != "Never",
        )
        for raw in raws
        if part(raw, "metadata")
    ]
    return PriorityClasses(by_name={one.name: one for one in found})


def find_class_problems(classes: PriorityClasses, reclaim: Reclaim) -> tuple[str, ...]:
    """Return why EDL cannot run with these classes; empty if it can.

    With `reclaim: planner` surplus has `LEVEL_SURPLUS`, and the graded classes are not used.
    """
    problems = list(_level_problems(classes, CORE_CLASS))
    match reclaim:
        case Reclaim.SCHEDULER:
            problems += _surplus_problems(classes)
        case Reclaim.PLANNER:
            problems += _level_problems(classes, LEVEL_SURPLUS)
        case _:
            assert_never(reclaim)
    return tuple(problems)


def find_rank_problem(classes: PriorityClasses, name: str, reclaim: Reclaim) -> str:
    """Return what is wrong with a job's class: its core pods must rank above surplus.  Empty if nothing is.

    Missing classes are not reported here; `find_class_problems` reports those of EDL.
    """
    value, surplus = classes.value_of(name), LEVEL_SURPLUS if reclaim is Reclaim.PLANNER else surplus_class(1)
    least = classes.value_of(surplus)
    if value is None or least is None:
        return ""
    if reclaim is Reclaim.SCHEDULER:
        least += 1
    if value >= least:
        return ""
    return (
        f"spec.priorityClassName: class {name!r} has value {value} and does not rank above {surplus}: this job's core "
        f"pods could be preempted before the surplus of other jobs; use a class of {least} or more"
    )


def _level_problems(classes: PriorityClasses, name: str) -> Iterator[str]:
    found = classes.by_name.get(name)
    if found is None:
        yield f"PriorityClass {name} is missing; the chart installs it"
        return
    if found.value != classes.default:
        yield (
            f"PriorityClass {name} has value {found.value}, pods without a class have {classes.default}; "
            "both must have the same value"
        )
    if found.may_preempt:
        yield f"PriorityClass {name} needs preemptionPolicy Never: kube-scheduler must not preempt pods for EDL's"


def _surplus_problems(classes: PriorityClasses) -> Iterator[str]:
    above = classes.default
    for grade in range(1, GRADES + 1):
        name = surplus_class(grade)
        found = classes.by_name.get(name)
        if found is None:
            yield f"PriorityClass {name} is missing; the chart installs it"
            continue
        if found.value >= above:
            bound = "pods without a class have" if grade == 1 else f"{surplus_class(grade - 1)} has"
            yield f"PriorityClass {name} has value {found.value}, {bound} {above}; it must be lower"
        if found.value < EXPENDABLE:
            yield (
                f"PriorityClass {name} has value {found.value}; cluster-autoscaler treats pods below {EXPENDABLE} as "
                "expendable"
            )
        if found.may_preempt:
            yield f"PriorityClass {name} needs preemptionPolicy Never: growth must not preempt"
        above = min(above, found.value)
