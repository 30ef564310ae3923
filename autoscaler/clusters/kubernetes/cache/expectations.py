"""Own writes that the watches have not shown yet: what to count on until they do.  Pure.

The answer to a write goes into the store at once (`Store.learn`).  Two kinds of writes have none to learn: a deletion,
and a creation that is under way or whose answer was lost.  A pod told to go is leaving for us before the watch says so,
else it would be chosen again; a pod that may have been made occupies its room, else the room would be given away twice.
Whatever has not shown within its time did not happen: the loop, which starts from what it sees, decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.cache.object_cache import Key, key_of
from autoscaler.fault_isolation import GuardedStep, JobErrors, object_key

EXPECTATION_LIMIT_S: Final = (
    10.0  # a watch that has shown nothing for that long is stale, and then nothing is written at all
)

ObjectPlace: TypeAlias = tuple[Kind, Key]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCreation:
    """May stand: it is being sent, or was and no answer came."""

    body: Raw
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDeletion:
    """Is leaving, or gone: the server has been told."""

    uid: str
    until_s: float


ExpectationT = TypeVar("ExpectationT", ExpectedCreation, ExpectedDeletion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What must show soon, by place."""

    creations: Mapping[ObjectPlace, ExpectedCreation] = field(default_factory=dict)
    deletions: Mapping[ObjectPlace, ExpectedDeletion] = field(default_factory=dict)

    def with_creation(self, kind: Kind, body: Raw, *, now_s: float) -> Expectations:
        """`body` is sent to be made, and nobody knows whether it was."""
        entry = {(kind, key_of(body)): ExpectedCreation(body=body, until_s=now_s + EXPECTATION_LIMIT_S)}
        return replace(self, creations={**self.creations, **entry})

    def without_creation(self, kind: Kind, body: Raw) -> Expectations:
        """It is known now: `body` stands in the store, or was not made."""
        place = (kind, key_of(body))
        return replace(self, creations={at: one for at, one in self.creations.items() if at != place})

    def with_deletion(self, kind: Kind, obj: Raw, *, now_s: float) -> Expectations:
        """This very object was told to go, and the server has heard it."""
        entry = {(kind, key_of(obj)): ExpectedDeletion(uid=obj["metadata"]["uid"], until_s=now_s + EXPECTATION_LIMIT_S)}
        return replace(self, deletions={**self.deletions, **entry})

    def settled(self, find: Callable[[Kind, Key], Raw | None], *, now_s: float, errors: JobErrors) -> Expectations:
        """Without what has shown (`find` is `Store.get`) and what has waited too long.

        What cannot be told of one object is counted on for its time, and stops nothing else (`errors`, A11).
        """
        creations = _open(self.creations, lambda place, _: find(*place) is None, now_s, errors)
        deletions = _open(self.deletions, lambda place, one: _stays(find(*place), one), now_s, errors)
        if len(creations) == len(self.creations) and len(deletions) == len(self.deletions):
            return self
        return Expectations(creations=creations, deletions=deletions)

    def is_leaving(self, kind: Kind, obj: Raw) -> bool:
        """Whether this very object was told to go."""
        told = self.deletions.get((kind, key_of(obj)))
        return told is not None and told.uid == obj["metadata"]["uid"]


def _open(
    entries: Mapping[ObjectPlace, ExpectationT],
    is_open: Callable[[ObjectPlace, ExpectationT], bool],
    now_s: float,
    errors: JobErrors,
) -> dict[ObjectPlace, ExpectationT]:
    """Those that are still counted on."""
    found = {}
    for place, one in entries.items():
        kind, key = place
        if now_s >= one.until_s:
            continue
        with errors.isolate(object_key(kind.plural, *key), GuardedStep.EXPECT):
            if not is_open(place, one):
                continue
        found[place] = one
    return found


def _stays(obj: Raw | None, told: ExpectedDeletion) -> bool:
    """The store shows it as if nobody had said anything."""
    return obj is not None and obj["metadata"]["uid"] == told.uid and "deletionTimestamp" not in obj["metadata"]
