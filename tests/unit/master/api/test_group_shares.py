"""Steps of a group and each rank's share of them (rule 63)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.api.group_shares import copy_marks, data_of, shares, step_of, step_positions, steps_per_epoch, total_steps
from master.api.identities import DatasetSpec, Incarnation, Lineage, MemberName
from master.api.messages.generations import Generation, GroupMember, HeadState, StateId
from master.api.positions import EMPTY, PositionSet, union

DATASETS = st.builds(
    DatasetSpec,
    name=st.just("digits"),
    size=st.integers(1, 60),
    epochs=st.integers(1, 4),
    batch_size=st.integers(1, 40),
)
POSITIONS = st.sets(st.integers(0, 239)).map(lambda some: PositionSet.of(*some))


def record(weights, *, quarantine=EMPTY, suspects=EMPTY, suspect_rank=0, takers=()):
    """A generation of so many members."""
    members = tuple(
        GroupMember(
            name=MemberName(f"t-{rank}"),
            incarnation=Incarnation(f"i{rank}"),
            address="unix:/s",
            share=weight,
            takes_state=rank in takers,
        )
        for rank, weight in enumerate(weights)
    )
    return Generation(
        number=1,
        lineage=Lineage(1),
        members=members,
        head=HeadState(state=StateId(lineage=Lineage(1), generation=0, step=0)),
        quarantine=quarantine,
        suspects=suspects,
        suspect_rank=suspect_rank,
    )


@given(DATASETS)
def test_steps_cover_every_position_once_and_cross_no_epoch(dataset):
    seen = EMPTY
    for step in range(total_steps(dataset)):
        positions = step_positions(dataset, step)
        assert 0 < len(positions) <= dataset.batch_size
        assert len({position // dataset.size for position in positions}) == 1
        assert positions.isdisjoint(seen)
        seen |= positions
        assert data_of(dataset, step + 1) == seen
        assert {step_of(dataset, position) for position in positions} == {step}
    assert seen == dataset.everything
    assert data_of(dataset, 0) == EMPTY


def test_a_step_beyond_the_end_is_refused():
    dataset = DatasetSpec(name="digits", size=10, epochs=2, batch_size=4)
    assert (steps_per_epoch(dataset), total_steps(dataset)) == (3, 6)
    with pytest.raises(ValueError, match="step 6 is not one of the 6 steps"):
        step_positions(dataset, 6)


@given(DATASETS, st.lists(st.integers(1, 5), min_size=1, max_size=6), POSITIONS, POSITIONS, st.data())
def test_shares_are_a_partition_of_what_is_not_quarantined(dataset, weights, quarantine, suspects, data):
    rank = data.draw(st.integers(0, len(weights) - 1))
    step = data.draw(st.integers(0, total_steps(dataset) - 1))
    positions = step_positions(dataset, step)
    is_first, takers = data.draw(st.booleans()), data.draw(st.sets(st.integers(0, len(weights) - 1)))
    made = record(weights, quarantine=quarantine, suspects=suspects, suspect_rank=rank, takers=takers)
    parts = shares(made, positions, is_first=is_first)
    assert len(parts) == len(weights)
    assert union(parts) == positions - quarantine
    assert sum(map(len, parts)) == len(positions - quarantine)
    for other, part in enumerate(parts):
        assert other == rank or part.isdisjoint(suspects)
    tried = (positions & suspects) - quarantine
    if tried and len(weights) > 1 and len(positions - quarantine - suspects) != 1:
        assert parts[rank] == tried, "its loss tells something of them"


def test_shares_follow_the_weights():
    parts = shares(record((1, 3)), PositionSet.span(0, 8))
    assert parts == (PositionSet.span(0, 2), PositionSet.span(2, 8))


def test_who_takes_the_state_has_no_share_of_the_first_step():
    """The others compute meanwhile; where nobody else is there all have their shares."""
    joined = record((1, 1, 1), takers={2})
    assert shares(joined, PositionSet.span(0, 8), is_first=True)[2] == EMPTY
    assert shares(joined, PositionSet.span(0, 8))[2] == PositionSet.span(5, 8)
    assert all(shares(record((1, 1), takers={0, 1}), PositionSet.span(0, 8), is_first=True))


@given(DATASETS, st.lists(st.integers(1, 5), min_size=1, max_size=6), POSITIONS)
def test_a_share_of_one_record_is_given_only_where_the_step_has_no_other(dataset, weights, quarantine):
    """Batch normalisation has no variance of a single record."""
    positions = step_positions(dataset, 0)
    parts = shares(record(weights, quarantine=quarantine), positions)
    assert 1 not in map(len, parts) or len(positions - quarantine) == 1


def test_the_marks_of_shards_agree_and_name_each_shard_once():
    """A checkpoint whose files are the shards of one state contradicts nothing that `audit` compares (rule 90)."""
    dataset, skipped = DatasetSpec(name="digits", size=10, epochs=2, batch_size=4), PositionSet.span(1, 3)
    marks = [one for shard in range(3) for one in copy_marks(dataset, 4, skipped, shard)]
    assert union(one.buckets for one in marks) == PositionSet.span(0, 3)
    assert {one.applied for one in marks} == {PositionSet.span(0, 14) - skipped}
    assert {one.skipped for one in marks} == {skipped}
