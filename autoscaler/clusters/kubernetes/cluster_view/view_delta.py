"""View delta: what the objects of one kind change in the next view."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.cache.object_cache import Key

ChangedKeys: TypeAlias = Mapping[Kind, Collection[Key]]
"""By kind, the keys of objects that were added, changed or removed since the last view."""

ThingT = TypeVar("ThingT")
NameT = TypeVar("NameT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDelta(Generic[ThingT, NameT]):
    """New or different things, and the names of those that are gone."""

    found: list[ThingT] = field(default_factory=list)
    gone: set[NameT] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.found or self.gone)
