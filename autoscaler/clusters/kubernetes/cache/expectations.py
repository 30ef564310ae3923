"""Expectations: own writes that no watch has shown yet, and that the view counts until one does.  Pure.

The answer to a write is cached at once (`ObjectCache.put_written`).  Two kinds of writes have no answer to cache: a
deletion, and a creation in flight or without an answer.  A pod that EDL deleted is terminating for EDL before the watch
says so, else the planner would choose it again.  A pod that may have been created occupies its capacity, else that
capacity would be given away twice.  An expectation ends after `EXPECTATION_LIMIT_S`, and the loop decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.cache.object_cache import Key, key_of
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key

EXPECTATION_LIMIT_S: Final = 10.0  # a watch that is silent for that long is stale, and then EDL writes nothing at all

ObjectRef: TypeAlias = tuple[Kind, Key]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCreation:
    """The object may exist: its creation is in flight, or had no answer."""

    body: Raw
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDeletion:
    """The object is terminating or gone: the server accepted its deletion."""

    uid: str
    until_s: float


ExpectationT = TypeVar("ExpectationT", ExpectedCreation, ExpectedDeletion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """Expected creations and deletions, by kind and key."""

    creations: Mapping[ObjectRef, ExpectedCreation] = field(default_factory=dict)
    deletions: Mapping[ObjectRef, ExpectedDeletion] = field(default_factory=dict)

    def with_creation(self, kind: Kind, body: Raw, *, now_s: float) -> Expectations:
        """Expect the object of a create request whose outcome is not known yet."""
        entry = {(kind, key_of(body)): ExpectedCreation(body=body, until_s=now_s + EXPECTATION_LIMIT_S)}
        return replace(self, creations={**self.creations, **entry})

    def without_creation(self, kind: Kind, body: Raw) -> Expectations:
        """Drop the expectation: the outcome is known, and the object is cached or was not created."""
        place = (kind, key_of(body))
        return replace(self, creations={at: one for at, one in self.creations.items() if at != place})

    def with_deletion(self, kind: Kind, obj: Raw, *, now_s: float) -> Expectations:
        """Expect the end of this very object, whose deletion the server accepted."""
        entry = {(kind, key_of(obj)): ExpectedDeletion(uid=obj["metadata"]["uid"], until_s=now_s + EXPECTATION_LIMIT_S)}
        return replace(self, deletions={**self.deletions, **entry})

    def settled(self, find: Callable[[Kind, Key], Raw | None], *, now_s: float, errors: JobErrors) -> Expectations:
        """Return the expectations without those that are fulfilled (`find` is `ObjectCache.get`) or have expired.

        An object that cannot be parsed is counted until its expectation expires, and holds up nothing else (`errors`,
        A11).
        """
        creations = _open(self.creations, lambda place, _: find(*place) is None, now_s, errors)
        deletions = _open(self.deletions, lambda place, one: _is_unchanged(find(*place), one), now_s, errors)
        if len(creations) == len(self.creations) and len(deletions) == len(self.deletions):
            return self
        return Expectations(creations=creations, deletions=deletions)

    def is_leaving(self, kind: Kind, obj: Raw) -> bool:
        """True if EDL has deleted this very object."""
        expectation = self.deletions.get((kind, key_of(obj)))
        return expectation is not None and expectation.uid == obj["metadata"]["uid"]


def _open(
    entries: Mapping[ObjectRef, ExpectationT],
    is_open: Callable[[ObjectRef, ExpectationT], bool],
    now_s: float,
    errors: JobErrors,
) -> dict[ObjectRef, ExpectationT]:
    """Return the expectations that still count."""
    found = {}
    for place, one in entries.items():
        kind, key = place
        if now_s >= one.until_s:
            continue
        with errors.isolate(object_key(kind.plural, *key), GuardedTask.EXPECT):
            if not is_open(place, one):
                continue
        found[place] = one
    return found


def _is_unchanged(obj: Raw | None, expectation: ExpectedDeletion) -> bool:
    """True if the cache shows the object as if it had not been deleted."""
    return obj is not None and obj["metadata"]["uid"] == expectation.uid and "deletionTimestamp" not in obj["metadata"]
