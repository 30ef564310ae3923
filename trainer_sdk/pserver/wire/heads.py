"""Heads of frames between trainers and servers: pushes, pulls and their answers, to and from bytes.

Little-endian, fixed layout; position sets in their own encoding.  Bodies are raw arrays in the order of `sections`,
each padded to 8 bytes.  Decoding is strict: bytes that are no such head raise WireError.  Pure.

To add a frame: its kind in `transport.frames`, its head here or in `peer_heads`, its sender in `client` or `transfer`,
its handler in `process.data_listener`; raise `transport.handshake.DATA_PATH_VERSION`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, assert_never

from master.api.identities import Lineage, TableKind, Version
from master.api.positions import PositionsError, PositionSet
from trainer_sdk.errors import WireError
from trainer_sdk.pserver.core.messages import Push, PushAnswer, PushTarget, PushVerdict, Ruling

_PUSH: Final = struct.Struct("<qI")  # lineage, bytes of positions
_ADDRESS: Final = struct.Struct("<8sHH")  # layout digest, targets, sections
_TARGET: Final = struct.Struct("<q")
_SECTION: Final = struct.Struct("<HBQ")
_LENGTH: Final = struct.Struct("<I")
_ANSWER: Final = struct.Struct("<qH")
_RULING: Final = struct.Struct("<B")
_PULL: Final = struct.Struct("<8sH")
_PULLED: Final = struct.Struct("<qB")

_VERDICTS: Final = tuple(PushVerdict)  # the order is part of the wire; new verdicts go to the end
_NUMBER_OF: Final = {verdict: number for number, verdict in enumerate(_VERDICTS)}


class SectionKind(IntEnum):
    """The table kind of a section, as a number."""

    DENSE = 0
    SPARSE = 1

    @classmethod
    def of(cls, kind: TableKind) -> SectionKind:
        match kind:
            case "dense":
                return cls.DENSE
            case "sparse":
                return cls.SPARSE
            case _:
                assert_never(kind)


class Section(NamedTuple):
    """One table in a body.  `length`: elements of a dense table, rows of a sparse one."""

    table: int
    kind: SectionKind
    length: int


class PushHead(NamedTuple):
    push: Push
    layout: bytes  # Layout.digest of the sender
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullHead:
    """Pull of these tables: of a dense one the elements in `buckets`, of a sparse one the rows named in the body."""

    layout: bytes
    buckets: PositionSet
    sections: tuple[Section, ...]


class PullStatus(IntEnum):
    OK = 0
    NOT_READY = 1
    MOVED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PullAnswer:
    """Head of a pull's answer; with OK the body has the tables in the order asked, all of `lineage`."""

    lineage: Lineage
    status: PullStatus


def encode_push(head: PushHead) -> bytes:
    push = head.push
    positions = push.positions.encode()
    address = _encoded_address(push.targets, head.layout, len(head.sections))
    sections = [_SECTION.pack(*section) for section in head.sections]
    return b"".join((_PUSH.pack(push.lineage, len(positions)), positions, address, *sections))


def decode_push(data: bytes) -> PushHead:
    """Raises WireError.  Only the positions differ from batch to batch; the rest is cached."""
    if len(data) < _PUSH.size:
        raise WireError("a head is cut short")
    lineage, position_bytes = _PUSH.unpack_from(data)
    end = _PUSH.size + position_bytes
    targets, layout, sections = _address(data[end:])
    positions = positions_in(data[_PUSH.size : end])
    return PushHead(Push(lineage=lineage, positions=positions, targets=targets), layout, sections)


@lru_cache(maxsize=256)
def _encoded_address(targets: tuple[PushTarget, ...], layout: bytes, section_count: int) -> bytes:
    out = [_ADDRESS.pack(layout, len(targets), section_count)]
    for target in targets:
        out += [_TARGET.pack(target.version), encoded_buckets(target.buckets)]
    return b"".join(out)


@lru_cache(maxsize=256)
def _address(data: bytes) -> tuple[tuple[PushTarget, ...], bytes, tuple[Section, ...]]:
    """Targets, layout and sections: the same in every batch of a trainer, unless rows are sparse."""
    reader = HeadReader(data)
    layout, target_count, section_count = reader.take(_ADDRESS)
    targets = tuple(
        PushTarget(version=Version(reader.take(_TARGET)[0]), buckets=buckets_in(reader.sized()))
        for _ in range(target_count)
    )
    sections = _sections(reader, section_count)
    reader.end()
    return targets, layout, sections


@lru_cache(maxsize=256)
def encode_push_answer(answer: PushAnswer) -> bytes:
    out = [_ANSWER.pack(answer.lineage, len(answer.rulings))]
    for ruling in answer.rulings:
        out += [_RULING.pack(_NUMBER_OF[ruling.verdict]), encoded_buckets(ruling.buckets)]
        out.append(length_prefixed(ruling.positions.encode()))
    return b"".join(out)


@lru_cache(maxsize=256)
def decode_push_answer(data: bytes) -> PushAnswer:
    reader = HeadReader(data)
    lineage, count = reader.take(_ANSWER)
    rulings = []
    for _ in range(count):
        (number,) = reader.take(_RULING)
        if number >= len(_VERDICTS):
            raise WireError(f"verdict {number} is unknown: another version of EDL?")
        buckets, positions = buckets_in(reader.sized()), reader.sized()
        rulings.append(Ruling(verdict=_VERDICTS[number], buckets=buckets, positions=positions_in(positions)))
    reader.end()
    return PushAnswer(lineage=Lineage(lineage), rulings=tuple(rulings))


@lru_cache(maxsize=256)
def encode_pull(head: PullHead) -> bytes:
    out = [_PULL.pack(head.layout, len(head.sections)), encoded_buckets(head.buckets)]
    out += [_SECTION.pack(*section) for section in head.sections]
    return b"".join(out)


@lru_cache(maxsize=256)
def decode_pull(data: bytes) -> PullHead:
    reader = HeadReader(data)
    layout, section_count = reader.take(_PULL)
    buckets = buckets_in(reader.sized())
    head = PullHead(layout=layout, buckets=buckets, sections=_sections(reader, section_count))
    reader.end()
    return head


def encode_pull_answer(answer: PullAnswer) -> bytes:
    return _PULLED.pack(answer.lineage, answer.status)


@lru_cache(maxsize=256)
def decode_pull_answer(data: bytes) -> PullAnswer:
    reader = HeadReader(data)
    lineage, status = reader.take(_PULLED)
    reader.end()
    return PullAnswer(lineage=Lineage(lineage), status=_named(PullStatus, status))


def padding(size_bytes: int) -> int:
    """Number of zero bytes that follow an array of that size in a body."""
    return -size_bytes % 8


class HeadReader:
    """Reads a head from front to back.  Raises WireError where it is too short or too long."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        try:
            out = form.unpack_from(self._data, self._at)
        except struct.error as error:
            raise WireError("a head is cut short") from error
        self._at += form.size
        return out

    def sized(self) -> bytes:
        (length,) = self.take(_LENGTH)
        out = self._data[self._at : self._at + length]
        if len(out) != length:
            raise WireError("a head is cut short")
        self._at += length
        return out

    def rest(self) -> bytes:
        return self._data[self._at :]

    def end(self) -> None:
        if self._at != len(self._data):
            raise WireError(f"a head has {len(self._data) - self._at} bytes too many")


def length_prefixed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _sections(reader: HeadReader, count: int) -> tuple[Section, ...]:
    out = []
    for _ in range(count):
        table, kind, rows = reader.take(_SECTION)
        out.append(Section(table, _named(SectionKind, kind), rows))
    return tuple(out)


def positions_in(data: bytes) -> PositionSet:
    try:
        return PositionSet.decode(data)
    except PositionsError as error:
        raise WireError(str(error)) from error


_Named = Any


def _named(names: _Named, number: int) -> _Named:
    try:
        return names(number)
    except ValueError as error:
        raise WireError(f"{names.__name__} {number} is unknown: another version of EDL?") from error


@lru_cache(maxsize=256)
def buckets_in(data: bytes) -> PositionSet:
    """The bucket set, cached: messages nearly always name the same few."""
    return positions_in(data)


@lru_cache(maxsize=256)
def encoded_buckets(buckets: PositionSet) -> bytes:
    return length_prefixed(buckets.encode())
