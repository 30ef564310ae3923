"""Micro-batches: the parts of a trainer's share of a step, one round of the script's loop each.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.group_shares import without_singles
from master.api.positions import PositionSet
from trainer_sdk.group.port import StepShare


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Some records of a step, in the order of their positions."""

    positions: PositionSet
    weight: float  # of their mean loss in that of the step; 0: the records are spare, and count nothing
    is_last: bool  # of this trainer's share


def micro_batches(share: StepShare, size: int | None, *, has_norm: bool = False) -> tuple[MicroBatch, ...]:
    """The share in as few parts of at most `size` records as can be, equally long but for one record; None: in one.

    Without a share the script runs with spare records, so that a loop makes as many rounds as it expects, in parts of
    the same size.  There is no part at all when the whole job is quarantined.

    `has_norm`: the model normalises by its micro-batch, and one record has no variance.  So a share that is odd has a
    part of three when `size` is 2; with 1 the script has asked for single records.
    """
    rest, divisor = share.positions or share.spare, share.records if share.positions else 0
    count = len(rest)
    number = -(-count // (size or max(1, count)))
    lengths = [count * (place + 1) // number - count * place // number for place in range(number)]
    if has_norm and size != 1:
        lengths = [length for length in without_singles(lengths) if length]
    parts: list[MicroBatch] = []
    for place, length in enumerate(lengths):
        part = rest.first(length)
        rest -= part
        weight = len(part) / divisor if divisor else 0.0
        parts.append(MicroBatch(positions=part, weight=weight, is_last=place == len(lengths) - 1))
    return tuple(parts)
