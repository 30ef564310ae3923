"""ResourceQuotas of a namespace, as far as they count EDL's pods.

A quota counts all pods of its namespace, or those of some classes or traits. Core pods have their job's class. Surplus
has one class for each grade, so a quota says which grades it counts; how the classes are called is the adapter's
business.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.cluster import Role, Trait
from autoscaler.domain.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimit:
    """Limit of one resource in a namespace, and its present use."""

    resource: str
    hard: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A ResourceQuota. It counts a pod from the pod's creation until it is gone."""

    namespace: str
    name: str
    limits: tuple[QuotaLimit, ...]
    core_classes: frozenset[str] | None = None  # of these core pods alone; None: of all but `core_classes_not`
    core_classes_not: frozenset[str] = frozenset()
    grades: frozenset[int] | None = None  # of these surplus trainers; None: of all
    traits: frozenset[Trait] = frozenset()  # of pods that have all of these
    traits_not: frozenset[Trait] = frozenset()  # and none of these

    @property
    def counts_all(self) -> bool:
        """True if it counts every pod of its namespace."""
        return not (
            self.core_classes is not None
            or self.core_classes_not
            or self.grades is not None
            or self.traits
            or self.traits_not
        )

    def counts(self, job: Job, role: Role, grade: int) -> bool:
        """True if it counts a pod of this job of its namespace.  `grade`: of surplus; 0: a core pod."""
        traits = job.traits_of(role)
        if not self.traits <= traits or self.traits_not & traits:
            return False
        if grade:
            return self.grades is None or grade in self.grades
        is_named = self.core_classes is None or job.priority_class in self.core_classes
        return is_named and job.priority_class not in self.core_classes_not
