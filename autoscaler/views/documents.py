"""Objects of a cluster at one instant, as the API server has them, and the part of them that a viewer may read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.views.view_memo import ViewMemo


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Rights of a viewer, as the API server would grant them; viewers with equal rights see the same.

    `namespaces`: whose jobs, pods and deployments may be listed; None: all.  `can_read_nodes`: nodes may be listed.
    `can_plan`: everything that a plan depends on may be read, so that the planner may be asked.
    """

    namespaces: frozenset[str] | None
    can_read_nodes: bool
    can_plan: bool

    def can_read(self, namespace: str) -> bool:
        """True if objects of this namespace may be listed."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING: Final = Rights(namespaces=None, can_read_nodes=True, can_plan=True)
WITHHELD: Final = "the API server does not let this page read all of it, or does not answer"
"""Said of a problem to viewers of a part: the problem itself may name other namespaces."""

NOTHING_READABLE: Final = Rights(namespaces=frozenset(), can_read_nodes=False, can_plan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDocuments:
    """Objects of a cluster at `now_s` (Unix time), each kind by namespace and name.

    `is_complete`: every pod is among them; what is not requested by one of them is free.  False after `readable` has
    left some out, and then nothing is known to be free.  `memo`: of views of these objects, and of those before them.
    `names`: of the namespaces, where the source knows them.  `unlisted`: plural names of kinds that the API server does
    not let list, of which nothing is known.  `is_current` False: changes do not arrive, and `now_s` is when the API
    server last confirmed all of it.  `problem`: why it is not current, or a kind that people look for is not listed.
    """

    now_s: float
    nodes: tuple[Raw, ...] = ()
    pods: tuple[Raw, ...] = ()
    jobs: tuple[Raw, ...] = ()
    deployments: tuple[Raw, ...] = ()
    node_gpus: tuple[Raw, ...] = ()
    is_complete: bool = True
    memo: ViewMemo = field(default_factory=ViewMemo, compare=False, repr=False)
    names: frozenset[str] | None = None
    unlisted: frozenset[str] = frozenset()
    is_current: bool = True
    problem: str = ""

    def readable(self, rights: Rights) -> ClusterDocuments:
        """Return the objects that these rights cover."""
        if rights.namespaces is None and rights.can_read_nodes:
            return self
        memo = self.memo.of_part(rights)

        def readable(kind: str, objects: tuple[Raw, ...]) -> tuple[Raw, ...]:
            if rights.namespaces is None:
                return objects
            found = readable_objects(self.memo.once(by_namespace, objects, name=kind), rights.namespaces)
            return memo.same_objects(kind, found)  # changes elsewhere are none for this viewer

        return replace(
            self,
            nodes=self.nodes if rights.can_read_nodes else (),
            node_gpus=(),  # a report names pods of every namespace
            pods=readable("pods", self.pods),
            jobs=readable("jobs", self.jobs),
            deployments=readable("deployments", self.deployments),
            is_complete=self.is_complete and rights.namespaces is None,
            memo=memo,
            names=None,
            problem=told_problem(self.problem, rights),
        )

    def namespaces(self) -> frozenset[str]:
        """Return the namespaces of the objects."""
        if self.names is not None:
            return self.names
        found = (*self.jobs, *self.deployments, *self.pods)
        return frozenset(text(one, "metadata", "namespace") for one in found)


def told_problem(problem: str, rights: Rights) -> str:
    """Return the problem as a viewer may read it."""
    return problem if not problem or rights.namespaces is None else WITHHELD


def by_namespace(objects: Iterable[Raw]) -> Mapping[str, Sequence[Raw]]:
    """Return the objects of each namespace, in their order."""
    found: dict[str, list[Raw]] = {}
    for one in objects:
        found.setdefault(text(one, "metadata", "namespace"), []).append(one)
    return found


def readable_objects(found: Mapping[str, Sequence[Raw]], namespaces: Collection[str]) -> tuple[Raw, ...]:
    """Return the objects in these namespaces."""
    return tuple(one for namespace in sorted(namespaces) for one in found.get(namespace, ()))
