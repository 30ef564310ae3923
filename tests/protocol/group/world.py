"""One group as a whole: its master, etcd, storage, trainers, and their collectives.

Beside what a trainer's core claims stands what is true: the bits of its replica, one tag for the first state and one
for each update that was really applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from master.api.checkpoints.manifest import Manifest
from master.api.identities import Incarnation
from master.api.messages.from_members import MemberMessage
from master.api.messages.generations import Generation
from master.api.messages.to_members import MasterMessage
from master.api.positions import PositionSet
from tests.protocol.group.masters import GroupEtcd, GroupMaster
from tests.protocol.interning import hashed_once
from trainer_sdk.group.core.control_words import StepWord, SyncEntry
from trainer_sdk.group.core.member_events import TakeCopy
from trainer_sdk.group.core.member_state import MemberState, rank_in

Tag = tuple[object, ...]
Bits = tuple[Tag, ...]


ASTRAY = "astray"
"""At the end of an update's tag: one trainer's script has applied it otherwise."""


def without_astray(bits: Bits) -> Bits:
    """As they would be if every script had applied each update alike."""
    return tuple(tag[:-1] if tag[-1] == ASTRAY else tag for tag in bits)


class Presence(StrEnum):
    FRESH = "fresh"  # may come
    HERE = "here"
    DEAD = "dead"  # and its stream is not known to be broken yet
    GONE = "gone"  # nobody waits for it


@dataclass(frozen=True, kw_only=True)
class Member:
    """A trainer's place.  `link`: the term that its stream goes to, 0 for none; what is on the stream both ways."""

    presence: Presence = Presence.FRESH
    births: int = 0
    core: MemberState | None = None
    bits: Bits = ()
    link: int = 0
    inbox: tuple[MasterMessage, ...] = ()
    outbox: tuple[MemberMessage, ...] = ()  # begins with a slow one, an offer
    copying: tuple[tuple[TakeCopy, Bits], ...] = ()  # copies that are being written
    is_hanging: bool = False  # its script does not come back from its step
    is_left_behind: bool = False  # and the master holds it for lost, and knows where its script is
    is_astray: bool = False  # its script applies the next update otherwise than the others do
    update: Tag | None = None  # of the step that is complete here and not applied yet

    def __hash__(self) -> int:
        """Kept; of the core it is its identity, as `draft.cores` has one object for equal ones."""
        known = vars(self)
        if "_hash" not in known:
            parts = (part for name, part in known.items() if name != "core")
            known["_hash"] = hash((id(self.core), *parts))
        return int(known["_hash"])

    def with_parts(self, **parts: object) -> Member:
        """As `dataclasses.replace`, in a tenth of its time."""
        assert parts.keys() <= _MEMBER_FIELDS, f"no fields of a member: {parts.keys() - _MEMBER_FIELDS}"
        made = object.__new__(Member)
        vars(made).update(vars(self), **parts)
        vars(made).pop("_hash", None)
        return made


_MEMBER_FIELDS: Final = Member.__dataclass_fields__.keys()


@dataclass(frozen=True, kw_only=True)
class StepSum:
    """What a step's collectives gave: the update's tag and all words."""

    step: int
    tag: Tag
    words: tuple[StepWord, ...]
    goes_to: int | None = None  # the generation that the first member to complete it enters next; 0: it stays


@dataclass(frozen=True, kw_only=True)
class Contribution:
    step: int
    positions: PositionSet
    word: StepWord


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """The connections of one generation: everything by rank."""

    record: Generation
    connecting: tuple[bool, ...]
    left: tuple[bool, ...]  # aborted, closed, or its process has ended
    entries: tuple[SyncEntry | None, ...]
    captured: tuple[Bits | None, ...]  # what a rank sends
    contributions: tuple[Contribution | None, ...]
    sums: tuple[StepSum, ...] = ()  # of the last step that is complete
    is_aborted: bool = False  # somebody left without waiting for the others' last operation (rule 82)
    __hash__ = hashed_once

    @classmethod
    def of(cls, record: Generation) -> Collectives:
        size = len(record.members)
        no, none = (False,) * size, (None,) * size
        return cls(record=record, connecting=no, left=no, entries=none, captured=none, contributions=none)


class GroupWorld(NamedTuple):
    """`files`: content of each checkpoint file that was written, with what its data position skips.

    `old_masters`: terms that are over and do not know it."""

    master: GroupMaster
    old_masters: tuple[GroupMaster, ...]
    etcd: GroupEtcd
    storage: tuple[Manifest, ...]
    files: tuple[tuple[str, Bits, PositionSet], ...]
    members: tuple[Member, ...]
    groups: tuple[Collectives, ...]
    faults: tuple[int, ...]
    copies: int
    given_up: int = 0  # the newest generation of lineages that the job has gone back from
    kept: int = 0  # steps of those that the head had by then
    is_hook_done: bool = False

    def group(self, number: int, incarnation: Incarnation) -> Collectives | None:
        """The connections that this process makes for this generation."""
        listed = (one for one in self.groups if rank_in(one.record, incarnation) >= 0)
        return next((one for one in listed if one.record.number == number), None)


def put(items: tuple, place: int, value: object) -> tuple:
    """The tuple with another value at one place."""
    return (*items[:place], value, *items[place + 1 :])


def with_group(world: GroupWorld, group: Collectives) -> GroupWorld:
    """The world with this generation's collectives instead of those before."""
    others = tuple(one for one in world.groups if one.record != group.record)
    return world._replace(groups=tuple(sorted((*others, group), key=lambda one: one.record.number)))
