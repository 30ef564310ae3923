"""The sync of a group member: who gives its state, who receives it, and what aborts it (rules 70, 71)."""

from dataclasses import replace

import pytest

from master.api.group_shares import shares, step_positions, total_steps
from master.api.identities import Incarnation, ManifestId
from master.api.messages.generations import (
    BrokenGeneration,
    HeadState,
    LeftGeneration,
    NewGeneration,
)
from master.api.positions import EMPTY, PositionSet
from tests.unit.trainer_sdk.group.group_world import DATASET, fresh, record_of
from tests.unit.trainer_sdk.group.member_cases import entry, feed, reports, sid, synced
from trainer_sdk.group.core.control_words import (
    SyncEntry,
)
from trainer_sdk.group.core.member_events import (
    GatherStates,
    GiveStep,
    GroupConnected,
    GroupFailed,
    ReceiveState,
    RefuseScript,
    SendState,
    StateCaptured,
    StatesGathered,
    StateTaken,
    StepReduced,
)
from trainer_sdk.group.core.member_state import MemberPhase
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.steps import expected_share, share_of
from trainer_sdk.group.core.sync import choose_transfer, senders


def test_record_with_another_process_of_this_name_is_not_entered():
    """Rule 64: a new process stands in no old record."""
    restarted = replace(fresh(0), incarnation=Incarnation("new"))
    state, effects = feed(restarted, NewGeneration(record=record_of(1, 0, 1)))
    assert state.phase is MemberPhase.OUT
    assert effects == ()


def test_source_is_the_largest_id_generation_first():
    """Rule 70: generation before step, a live replica before the head, then the lowest rank."""
    record = record_of(5, 0, 1, 2, head=HeadState(state=sid(3, 4), manifest=ManifestId("m")))
    older, newer = entry(record, sid(3, 6)), entry(record, sid(4, 5))
    assert choose_transfer(record, (older, newer, newer), 0).source == 1
    assert choose_transfer(record, (older, newer, newer), 1).receivers == (0,)
    assert choose_transfer(record, (older, newer, newer), 2).receivers == ()
    behind = (entry(record, sid(2, 9)), entry(record, None), entry(record, None))
    assert all(choose_transfer(record, behind, rank).is_from_head for rank in range(3))
    tied = (entry(record, sid(3, 4)), entry(record, None), entry(record, None))
    assert choose_transfer(record, tied, 0).receivers == (1, 2)


def test_many_receivers_are_shared_by_all_who_hold_the_state():
    """Rule 71: any member with that id may send."""
    record = record_of(2, *range(6))
    entries = (*(entry(record, sid(1, 3)) for _ in range(2)), *(entry(record, None) for _ in range(4)))
    assert choose_transfer(record, entries, 0).receivers == (2, 4)
    assert choose_transfer(record, entries, 1).receivers == (3, 5)
    assert [choose_transfer(record, entries, rank).source for rank in range(2, 6)] == [0, 1, 0, 1]


@pytest.mark.parametrize(("holders", "takers"), [(1, 7), (2, 9), (3, 1), (1, 255)])
def test_number_of_those_that_have_the_state_doubles_with_each_transfer(holders, takers):
    """Who has taken it passes it on: after k transfers there are 2 ** k times as many as at first."""
    sender_of = senders(range(holders), range(holders, holders + takers))
    done = dict.fromkeys(range(holders), 0)  # by rank: after which transfer it has the state
    for rank in range(holders, holders + takers):
        turn = [taker for taker, sender in sender_of.items() if sender == sender_of[rank]].index(rank)
        done[rank] = done[sender_of[rank]] + turn + 1
    transfers = max(done.values())
    assert holders * 2 ** (transfers - 1) < holders + takers <= holders * 2**transfers


def test_who_has_taken_the_state_passes_it_on_before_it_trains():
    """Rule 71, with four members: the second takes the first one's state, and the fourth takes it from there."""
    record = record_of(2, 0, 1, 2, 3)
    entries = (entry(record, sid(1, 3)), *(entry(record, None) for _ in range(3)))
    state, _ = feed(
        replace(fresh(1), is_fresh=False),
        NewGeneration(record=record),
        GroupConnected(number=2),
        StatesGathered(number=2, entries=entries),
    )
    assert next_work(state) == ReceiveState(number=2, source=0, state=sid(1, 3), skipped=EMPTY)
    assert feed(state, StateCaptured(number=2))[0] == state, "nothing is captured of a replica that it does not have"
    state, _ = feed(state, StateTaken(number=2, state=sid(1, 3), skipped=EMPTY))
    assert next_work(state) == SendState(number=2, to=(3,))
    state, _ = feed(state, StateCaptured(number=2))
    assert isinstance(next_work(state), GiveStep)


def joined(step, me, *, members=2, **parts):
    """Member `me` in the first step of a generation whose last member takes the state of this step."""
    record = record_of(2, *range(members))
    last = replace(record.members[-1], takes_state=True)
    record = replace(record, members=(*record.members[:-1], last), **parts)
    held = (*(entry(record, sid(1, step)) for _ in record.members[1:]), entry(record, None))
    state = fresh(me) if me == members - 1 else replace(fresh(me), state=sid(1, step), is_fresh=False)
    state, _ = feed(
        state, NewGeneration(record=record), GroupConnected(number=2), StatesGathered(number=2, entries=held)
    )
    return feed(state, StateTaken(number=2, state=sid(1, step), skipped=EMPTY))[0] if me == members - 1 else state


def test_who_takes_the_state_runs_the_first_step_with_records_that_are_trained():
    """Rule 63: it has no share, and its script runs with as many records as it will have, so that shapes are those to
    come; they are of the step before, for one of its own may be a poison record that another rank trains.
    """
    state = joined(4, me=1)
    first, second = share_of(state), expected_share(state, 5)
    usual = shares(state.record, step_positions(DATASET, 4))[1]
    assert (first.positions, first.spare) == (EMPTY, step_positions(DATASET, 3).first(len(usual)))
    assert second.positions == shares(state.record, step_positions(DATASET, 5))[1]


@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("step", range(1, total_steps(DATASET)))
def test_record_of_the_first_step_of_a_generation_is_in_one_process_alone(step, members):
    """A poison record takes one process with it, also beside a joiner, and at the beginning of an epoch."""
    given = [share_of(joined(step, me=rank, members=members)) for rank in range(members)]
    in_hand = [position for one in given for position in one.positions | one.spare]
    for position in step_positions(DATASET, step):
        assert in_hand.count(position) == 1


def test_rank_without_a_share_runs_with_two_trained_records():
    """More trainers than records, in the middle of an epoch."""
    state = synced(step=5, members=(0, 1, 2))
    share = share_of(state)
    assert (share.positions, share.spare) == (EMPTY, step_positions(DATASET, 4).first(2))


def test_steps_of_a_long_job_are_not_listed_for_a_rank_without_a_share():
    """A joiner and the end of an epoch need one step's records; to list a million steps took a tenth of a second."""
    state = synced(step=5, members=(0, 1, 2))
    long = replace(state, dataset=replace(DATASET, epochs=10**15))
    assert share_of(long).spare == share_of(state).spare


def test_first_state_is_one_members_and_named_by_its_generation():
    """Rules 65, 70: two processes may make the first state differently, so its id names who chose it."""
    record = record_of(7, 0, 1, 2)
    entries = (entry(record, None), entry(record, None, is_fresh=True), entry(record, None, is_fresh=True))
    sender, receiver = choose_transfer(record, entries, 1), choose_transfer(record, entries, 2)
    assert sender.state == receiver.state == sid(7, 0)
    assert (sender.receivers, receiver.source) == ((0, 2), 1)


def test_first_state_that_nobody_holds_is_refused():
    """A replica that has trained cannot become the first state again: the processes start again."""
    state = replace(synced(), phase=MemberPhase.SYNC, has_synced=False, state=None)
    entries = (entry(state.record, None),) * 2
    state, effects = feed(state, StatesGathered(number=1, entries=entries))
    assert any(isinstance(effect, RefuseScript) for effect in effects)
    assert state.phase is MemberPhase.OUT


def test_other_digest_aborts_the_sync():
    """Rule 70: members that mean different records or layouts do not start."""
    record = record_of(1, 0, 1)
    state, _ = feed(fresh(0), NewGeneration(record=record), GroupConnected(number=1))
    assert isinstance(next_work(state), GatherStates)
    wrong = SyncEntry(digest="other", state=None, is_fresh=True)
    state, _ = feed(state, StatesGathered(number=1, entries=(entry(record, None, is_fresh=True), wrong)))
    assert (state.phase, state.left) == (MemberPhase.OUT, 1)


def receiving(me=1):
    record = record_of(3, 0, 1)
    own = replace(fresh(me), state=sid(1, 2), is_fresh=False)
    entries = (entry(record, sid(2, 2), skipped=PositionSet.of(1)), entry(record, sid(1, 2)))
    return feed(own, NewGeneration(record=record), GroupConnected(number=3), StatesGathered(number=3, entries=entries))[
        0
    ]


def test_equal_step_of_another_generation_is_received():
    """Rule 71: the same step is not the same state."""
    state = receiving()
    assert next_work(state) == ReceiveState(number=3, source=0, state=sid(2, 2), skipped=PositionSet.of(1))
    kept = receiving(me=0)
    assert next_work(kept) == SendState(number=3, to=(1,))


def test_failed_transfer_leaves_what_was_there():
    """Rule 71: until the swap a member keeps what it had."""
    state, effects = feed(receiving(), GroupFailed(number=3))
    assert state.state == sid(1, 2)
    assert reports(effects) == [LeftGeneration(left=3, state=sid(1, 2))]


def test_swap_that_ends_after_an_abort_still_counts():
    """The replica is what it is: the swap was whole though the group had broken meanwhile."""
    state, _ = feed(receiving(), BrokenGeneration(number=3))
    state, _ = feed(state, StateTaken(number=3, state=sid(2, 2), skipped=PositionSet.of(1)))
    assert (state.phase, state.state, state.skipped) == (MemberPhase.OUT, sid(2, 2), PositionSet.of(1))


def test_nothing_is_contributed_before_the_own_sync_is_over():
    """Rule 72."""
    state = receiving()
    assert feed(state, StepReduced()) == (state, ())
