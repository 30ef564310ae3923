"""The records of a group's step and each rank's share of them: functions of the record and the step (rule 63). Pure.

Step s of the job is a fixed slice of its positions, whoever trains it: steps never cross an epoch's end, so an epoch
has ceil(size / global batch) steps and its last one may be shorter.
"""

from __future__ import annotations

from collections.abc import Sequence

from master.api.identities import DatasetSpec
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.generations import Generation
from master.api.positions import EMPTY, PositionSet


def steps_per_epoch(dataset: DatasetSpec) -> int:
    """Steps of an epoch; `dataset.batch_size` is the global batch."""
    return -(-dataset.size // dataset.batch_size)


def total_steps(dataset: DatasetSpec) -> int:
    """Steps of the whole job."""
    return dataset.epochs * steps_per_epoch(dataset)


def step_positions(dataset: DatasetSpec, step: int) -> PositionSet:
    """Positions of the step, the first one being 0.  Raises ValueError beyond the last step."""
    if not 0 <= step < total_steps(dataset):
        raise ValueError(f"step {step} is not one of the {total_steps(dataset)} steps of {dataset.name!r}")
    epoch, within = divmod(step, steps_per_epoch(dataset))
    begin = epoch * dataset.size + within * dataset.batch_size
    return PositionSet.span(begin, min(begin + dataset.batch_size, (epoch + 1) * dataset.size))


def step_of(dataset: DatasetSpec, position: int) -> int:
    """The step that trains this position."""
    epoch, place = divmod(position, dataset.size)
    return epoch * steps_per_epoch(dataset) + place // dataset.batch_size


def takers_wait(dataset: DatasetSpec, step: int) -> bool:
    """True if who takes the state has no share of this step, should it be the first one of its generation (rule 63).

    Its script runs with records of the step before meanwhile, which are trained, so that no poison record is read at
    two ranks.  The first step of an epoch has none before it: there who takes the state has its share.
    """
    return step % steps_per_epoch(dataset) > 0


def data_of(dataset: DatasetSpec, step: int) -> PositionSet:
    """Positions of the first `step` steps, trained or skipped."""
    if step == 0:
        return EMPTY
    return PositionSet.span(0, step_positions(dataset, step - 1).bounds[1])


def copy_marks(dataset: DatasetSpec, step: int, skipped: PositionSet, shard: int) -> tuple[BucketMarks, ...]:
    """The marks of a copy's file: its shard has trained all that comes before `step` but the skipped (rule 90)."""
    return (BucketMarks(buckets=PositionSet.of(shard), applied=data_of(dataset, step) - skipped, skipped=skipped),)


def shares(record: Generation, positions: PositionSet, *, is_first: bool = False) -> tuple[PositionSet, ...]:
    """Each rank's part of a step's positions, by rank: disjoint, and together all but the quarantined (rules 63, 94).

    Consecutive parts in proportion to the members' weights; a part may be empty, and holds a single position only where
    it cannot be helped: batch normalisation has no variance of one record.  In the generation's first step
    (`is_first`, unless it begins an epoch: `takers_wait`) who takes the state has no part: the others compute while it
    does.  Suspects go to one rank, which has
    nothing else, so that its loss tells something of them.
    """
    todo = positions - record.quarantine
    if len(record.members) == 1:
        return (todo,)
    tried, weights = todo & record.suspects, [member.share for member in record.members]
    if not tried:
        held = [0 if member.takes_state else member.share for member in record.members]
        return tuple(_split(todo, held if is_first and any(held) else weights))
    weights[record.suspect_rank] = 0
    rest = todo - tried if len(todo - tried) != 1 else EMPTY
    parts = _split(rest, weights)
    parts[record.suspect_rank] = todo - rest
    return tuple(parts)


def _split(positions: PositionSet, weights: Sequence[int]) -> list[PositionSet]:
    total, count, seen, taken = sum(weights), len(positions), 0, 0
    sizes: list[int] = []
    for weight in weights:
        seen += weight
        sizes.append(count * seen // total - taken)
        taken += sizes[-1]
    parts, rest = [], positions
    for size in without_singles(sizes):
        parts.append(rest.first(size))
        rest -= parts[-1]
    return parts


def without_singles(sizes: Sequence[int]) -> list[int]:
    """The same total, in which a part of one has taken one from the next part, or gone to it, or to the one before."""
    fixed = list(sizes)
    held = [place for place, size in enumerate(sizes) if size]
    for place, other in zip(held, [*held[1:], *held[-2:-1]], strict=False):
        if fixed[place] == 1 and fixed[other]:
            moved = 1 if fixed[other] > 2 else -1
            fixed[place], fixed[other] = fixed[place] + moved, fixed[other] - moved
    return fixed
