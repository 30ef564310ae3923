"""Micro-batches of a trainer's share (ADR 0239): equal parts, and as long ones of spare records."""

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from master.api.positions import EMPTY, PositionSet  # noqa: E402
from trainer_sdk.group.port import StepShare  # noqa: E402
from trainer_sdk.torch.micro_batches import micro_batches  # noqa: E402


def share(positions=EMPTY, spare=EMPTY):
    return StepShare(step=1, epoch=0, positions=positions, spare=spare, records=20, rank=0, size=2, generation=1)


@pytest.mark.parametrize(("size", "lengths"), [(None, [10]), (4, [3, 3, 4]), (16, [10])])
def test_spare_records_come_in_parts_of_the_same_size_and_count_nothing(size, lengths):
    """A joiner that ran its whole share at once, to warm up, would run out of memory."""
    records = PositionSet.span(20, 30)
    trained, spare = (micro_batches(share(**{name: records}), size) for name in ("positions", "spare"))
    assert [len(part.positions) for part in spare] == [len(part.positions) for part in trained] == lengths
    assert [part.is_last for part in spare] == [part.is_last for part in trained]
    assert sum(part.weight for part in trained) == pytest.approx(10 / 20)
    assert {part.weight for part in spare} == {0.0}
    assert not micro_batches(share(), size)


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [(3, 2, [3]), (7, 2, [3, 2, 2]), (4, 2, [2, 2]), (5, 3, [2, 3]), (3, 1, [1, 1, 1]), (1, 2, [1]), (0, 2, [])],
)
def test_batch_normalisation_is_given_no_single_record_of_a_share(count, size, lengths):
    """It has no variance of one, and raises; the weights are still those of the records."""
    parts = micro_batches(share(positions=PositionSet.span(0, count)), size, has_norm=True)
    assert sorted(len(part.positions) for part in parts) == sorted(lengths)
    assert [part.is_last for part in parts] == [place == len(parts) - 1 for place in range(len(parts))]
    assert sum(part.weight for part in parts) == pytest.approx(count / 20)
