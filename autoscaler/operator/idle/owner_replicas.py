"""Replicas of an owner: which of its idle pods can leave by a scale of one replica less, and in which order.

A StatefulSet gives up its highest ordinal and no other, so that an idle pod below it leaves after those above it, and
stays while one of them works.  A Deployment gives up the pod that the deletion cost names, so that any of its idle
pods can leave.  Both keep the number of replicas that was declared.  Pure; `owner_scaling` acts (ADR 0293).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from autoscaler.clusters.kubernetes.api.kinds import STATEFUL_SETS, Kind
from autoscaler.clusters.kubernetes.objects.fields import Raw, integer, part, text
from autoscaler.clusters.kubernetes.objects.labels import IDLE_MINIMUM
from autoscaler.domain import IdlePod
from autoscaler.domain.idleness import StayReason


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReplicas:
    """What a pod's Deployment or StatefulSet wants, as its consent counts it.

    `ordinal`: the pod's place in a StatefulSet, from 0; None: its owner is a Deployment.
    """

    owner_uid: str
    count: int
    minimum: int  # that stay
    ordinal: int | None = None


class AtMinimumError(ValueError):
    """An owner has no more replicas than it declared to keep: it agreed, and nothing is wrong with that."""


IdleReplica = tuple[IdlePod, OwnerReplicas | None]
"""An idle pod, and what its owner wants; None: it has no owner to scale, or leaves already."""


def replicas_of(kind: Kind, owner: Raw, pod: Raw, minimum: int) -> OwnerReplicas:
    """Return what the owner of a pod, of this kind, wants.

    Raises:
        AtMinimumError: all its replicas stay.
        ValueError: the pod's place in it is not known; the text says why.
    """
    count = integer(owner, "spec", "replicas", default=1)
    if minimum >= count > 0:
        has = "1 replica" if count == 1 else f"{count} replicas"
        raise AtMinimumError(f"{IDLE_MINIMUM}: {minimum} keeps its {kind.kind}, which has {has}")
    ordinal = _ordinal_of(owner, pod, count) if kind == STATEFUL_SETS else None
    return OwnerReplicas(owner_uid=text(owner, "metadata", "uid"), count=count, minimum=minimum, ordinal=ordinal)


def loses_volumes(owner: Raw) -> bool:
    """True if a scale deletes the volumes of the pod that leaves: what is given back are GPUs, not somebody's files."""
    return text(owner, "spec", "persistentVolumeClaimRetentionPolicy", "whenScaled") == "Delete"


def in_leaving_order(found: Iterable[IdleReplica]) -> tuple[IdlePod, ...]:
    """Return the idle pods; of those that an owner counts only the ones that can leave have consent, in their turn."""
    groups = groupby(sorted(found, key=_owner_uid), _owner_uid)
    return tuple(one for uid, group in groups for one in _of_owner(list(group), is_counted=bool(uid)))


def _owner_uid(one: IdleReplica) -> str:
    idle, replicas = one
    return "" if replicas is None or idle.after_s is None else replicas.owner_uid


def _of_owner(group: Sequence[IdleReplica], *, is_counted: bool) -> Iterator[IdlePod]:
    """Yield the pods of one owner; `is_counted`: it has a number of replicas, and all of them agreed."""
    pods = [idle for idle, _ in group]
    replicas = [one for _, one in group if one is not None] if is_counted else []
    if not replicas:
        yield from pods
        return
    count, minimum = replicas[0].count, max(one.minimum for one in replicas)
    if replicas[0].ordinal is None:
        yield from _first_due(pods, count - minimum)
    else:
        by_ordinal = {one.ordinal: idle for one, idle in zip(replicas, pods, strict=True) if one.ordinal is not None}
        yield from _from_the_top(by_ordinal, count, minimum)


def _first_due(pods: Sequence[IdlePod], most: int) -> Iterator[IdlePod]:
    """As many as a Deployment can spare may leave, those that are due first."""
    for number, idle in enumerate(sorted(pods, key=lambda one: (one.due_at_s, one.pod))):
        yield idle if number < most else replace(idle, after_s=None, stays=StayReason.MINIMUM)


def _from_the_top(by_ordinal: dict[int, IdlePod], count: int, minimum: int) -> Iterator[IdlePod]:
    """Of a StatefulSet the unbroken row from its highest ordinal down may leave, each after the one above it."""
    above, ordinal = None, count - 1
    while ordinal >= minimum and ordinal in by_ordinal:
        idle = by_ordinal.pop(ordinal)
        yield replace(idle, goes_after=above)
        above, ordinal = idle.pod, ordinal - 1
    for place, idle in by_ordinal.items():
        stays = StayReason.MINIMUM if place < minimum else StayReason.ORDINAL
        yield replace(idle, after_s=None, stays=stays)


def _ordinal_of(stateful_set: Raw, pod: Raw, count: int) -> int:
    """Return the pod's place, from 0.  Raises ValueError for a name that no StatefulSet gives."""
    name, owner = text(pod, "metadata", "name"), text(stateful_set, "metadata", "name")
    written = name.removeprefix(f"{owner}-")
    if written != name and written.isascii() and written.isdigit() and len(written) < 10:
        return int(written) - integer(part(stateful_set, "spec"), "ordinals", "start")
    if count == 1:
        return 0  # there is no other
    raise ValueError(f"its StatefulSet {owner} has given it no number")
