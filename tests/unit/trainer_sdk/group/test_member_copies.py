"""Copies of a group member for checkpoints: wishes, shards, offers, stamps (rules 84 to 90)."""

from dataclasses import replace

import pytest

from master.api.identities import Lineage, ManifestId
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import (
    BrokenGeneration,
    CopyFailed,
    HeadState,
    NewGeneration,
    OfferState,
    ReplicaRegistered,
)
from master.api.messages.to_members import OfferAnswered
from master.api.positions import EMPTY, PositionSet
from tests.unit.trainer_sdk.group.group_world import DATASET, LINEAGE, fresh, record_of
from tests.unit.trainer_sdk.group.member_cases import COPY_WANTED, entry, feed, prepared, reports, sid, synced, word
from trainer_sdk.group.core.control_words import (
    CANNOT_COPY,
)
from trainer_sdk.group.core.member_events import (
    CopyNow,
    CopyTaken,
    CopyWritten,
    GiveStep,
    GroupConnected,
    LoadHead,
    StatesGathered,
    StateTaken,
    StepApplied,
    StepReduced,
    TakeCopy,
    WordsGathered,
)
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.transitions import give, handle_member


def file_of(name="copy"):
    return FileRecord(name=name, size_bytes=1, digest="d", lineage=LINEAGE, marks=())


def with_copy(*, written=True):
    state = synced(step=2, is_registered=True)
    state, _ = feed(state, CopyNow())
    work = next_work(state)
    assert work == TakeCopy(number=1, stamp=1, state=sid(0, 2), skipped=EMPTY)
    state, effects = feed(state, CopyTaken(work=work), *([CopyWritten(number=1, file=file_of())] if written else []))
    return state, effects


def test_copy_is_offered_with_its_stamp_until_it_is_answered():
    """Rules 84, 85, 87: again after each broken stream."""
    state, effects = with_copy()
    (offered,) = reports(effects)
    assert (offered.stamp, offered.state, offered.offer) == (1, sid(0, 2), 1)
    registered = ReplicaRegistered(term=2, lineage=LINEAGE, dataset=DATASET, report_every_s=1)
    assert reports(feed(state, registered)[1]) == [offered]
    done, _ = feed(state, OfferAnswered(offer=1, manifest=ManifestId("m")))
    assert (done.copy, done.committed) == (None, (2, False))
    assert feed(done, registered)[1] == ()


def test_commits_of_an_older_lineage_say_nothing_of_a_newer_one():
    """The master went back to an older checkpoint (rule 93): steps up to the lost one are copied and awaited again."""
    state, _ = with_copy()
    newer = ReplicaRegistered(term=2, lineage=Lineage(LINEAGE + 1), dataset=DATASET, report_every_s=1)
    answered = OfferAnswered(offer=state.copy.offer, manifest=ManifestId("m"))
    for events in ((answered, newer), (newer, answered)):
        after, _ = feed(state, *events)
        assert after.committed == (0, False)


def test_sync_restamps_the_copy_of_who_keeps_its_state():
    """Rule 86: an ancestor of the group's state gets the new stamp, under a new offer; the old answer is late."""
    state, _ = with_copy()
    state, _ = feed(state, BrokenGeneration(number=1))
    record = record_of(2, 0, 1)
    kept = (entry(record, sid(0, 2)), entry(record, sid(0, 2)))
    state, _ = feed(state, NewGeneration(record=record), GroupConnected(number=2))
    again, effects = feed(state, StatesGathered(number=2, entries=kept))
    (offered,) = [message for message in reports(effects) if isinstance(message, OfferState)]
    assert (offered.stamp, offered.offer) == (2, 2)
    assert feed(again, OfferAnswered(offer=1, manifest=None))[0].copy is not None
    other = (entry(record, sid(0, 2)), entry(record, sid(1, 3)))
    assert feed(state, StatesGathered(number=2, entries=other))[0].copy is None


def said_of_copy(state, *, replica_bytes=0):
    """What this member's next word says of a copy."""
    (contribution,) = handle_member(give(state), StepReduced(replica_bytes=replica_bytes)).effects
    return contribution.word.copy_shards


def test_wish_of_any_rank_makes_the_first_one_copy_a_small_replica():
    """Rule 84: the step's word carries the wish."""
    for me in (0, 1):
        state = synced(me=me)
        said = [word(state), word(state)]
        said[1 - me] = word(state, copy_shards=1)
        done, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=tuple(said)), StepApplied())
        assert isinstance(next_work(done), TakeCopy) == (me == 0)
    assert said_of_copy(feed(synced(me=1), COPY_WANTED)[0]) == 1
    assert said_of_copy(synced(me=1)) == 0


@pytest.mark.parametrize(("megabytes", "shards"), [(0, 1), (15, 1), (16, 2), (1000, 2)])
def test_large_replica_is_wished_in_shards(megabytes, shards):
    """Rule 84: one writer below 16 MiB, and no more of them than members."""
    state, _ = feed(synced(), COPY_WANTED)
    assert said_of_copy(state, replica_bytes=megabytes << 20) == shards


def sharded(me=0, words=(2, 0)):
    """A member after a step whose words said this of a copy."""
    state = synced(me=me, is_registered=True)
    said = tuple(word(state, copy_shards=one) for one in words)
    return feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())[0]


def test_all_members_copy_their_shards_after_the_same_step():
    """Rule 84: who wishes, and who does not."""
    for me in (0, 1):
        work = next_work(sharded(me))
        assert (work.shard, work.shards, work.state.step) == (me, 2, 1)
        assert [name.split("-")[1] for name in work.writers] == ["0", "1"]


def test_nobody_copies_while_one_still_writes():
    """Rule 84: the wish stays until all can."""
    state, _ = with_copy(written=False)
    assert said_of_copy(state) == CANNOT_COPY
    assert isinstance(next_work(sharded(words=(2, CANNOT_COPY))), GiveStep)
    wishing, _ = feed(synced(), COPY_WANTED)
    said = (word(wishing, copy_shards=2), word(wishing, copy_shards=CANNOT_COPY))
    wishing, _ = feed(give(wishing), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
    assert said_of_copy(wishing) == 1


def test_copy_that_a_sync_drops_is_still_written():
    """Rule 84: a process writes one copy at a time.  Storage was blamed for the next one, seconds after a kill."""
    state, _ = with_copy(written=False)
    record = record_of(2, 0, 1)
    state, _ = feed(state, BrokenGeneration(number=1), NewGeneration(record=record), GroupConnected(number=2))
    other = (entry(record, sid(0, 2)), entry(record, sid(1, 3)))
    state, _ = feed(state, StatesGathered(number=2, entries=other))
    state, _ = feed(state, StateTaken(number=2, state=sid(1, 3), skipped=EMPTY))
    assert state.copy is None
    assert said_of_copy(state) == CANNOT_COPY
    leaving, _ = feed(state, CopyNow())
    assert not isinstance(next_work(leaving), TakeCopy)
    state, _ = feed(leaving, CopyWritten(number=1, file=file_of()))
    assert isinstance(next_work(state), TakeCopy)


def test_shard_that_could_not_be_written_is_told():
    """Rule 88: the master gives the others up."""
    state = sharded(1)
    state, effects = feed(
        state, CopyTaken(work=next_work(state)), CopyWritten(number=1, file=None, problem="the disk is full")
    )
    assert reports(effects) == [CopyFailed(state=sid(1, 1), shards=2, reason="the disk is full")]
    assert state.copy is None


def test_shard_that_could_not_be_written_is_told_once_a_master_is_there():
    """Rule 88: without a stream the others' shards would wait until the next copy is due."""
    state = replace(sharded(1), is_registered=False)
    failed = CopyWritten(number=1, file=None, problem="the disk is full")
    state, effects = feed(state, CopyTaken(work=next_work(state)), failed)
    assert reports(effects) == []
    registered = ReplicaRegistered(term=2, lineage=LINEAGE, dataset=DATASET, report_every_s=1)
    state, effects = feed(state, registered)
    assert reports(effects) == [CopyFailed(state=sid(1, 1), shards=2, reason="the disk is full")]
    assert feed(state, registered)[1] == ()


def with_shard(me=0):
    state = sharded(me)
    return feed(state, CopyTaken(work=next_work(state)), CopyWritten(number=1, file=file_of()))[0]


def test_shard_is_dropped_where_a_writer_is_not_there():
    """Rules 86, 88: kept in a generation of the same writers, and in one that is planned from its own."""
    for members, planned_from, is_kept in (((0, 1), 0, True), ((0, 2), 0, False), ((0, 2), 1, True)):
        state = with_shard()
        record = record_of(2, *members, planned_from=planned_from)
        if planned_from:
            state, _ = feed(state, NewGeneration(record=record), GroupConnected(number=2))
            said = tuple(word(state, prepared=2) for _ in range(2))
            state, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
        else:
            state, _ = feed(state, BrokenGeneration(number=1), NewGeneration(record=record), GroupConnected(number=2))
        same = tuple(entry(record, state.state) for _ in range(2))
        state, _ = feed(state, StatesGathered(number=2, entries=same))
        assert (state.copy is not None) == is_kept
        assert state.copy is None or state.copy.stamp == 2


def test_copy_does_not_follow_a_step_of_the_switch():
    """Rule 84: others hold the replica after it; the wish stays."""
    state, _ = feed(prepared(record_of(2, 0, 1, 2, planned_from=1)), COPY_WANTED)
    said = tuple(word(state, prepared=2, copy_shards=2) for _ in range(2))
    state, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
    assert (state.number, state.copy_shards, state.wants_copy) == (2, 0, True)


def test_newer_shard_takes_the_place_of_one_that_is_not_committed():
    """Rule 88: the other shard of the older copy never came."""
    state, _ = feed(with_shard(), COPY_WANTED)
    said = (word(state, copy_shards=2), word(state, copy_shards=0))
    state, _ = feed(give(state), StepReduced(), WordsGathered(number=1, words=said), StepApplied())
    work = next_work(state)
    assert (work.shards, work.state.step) == (2, 2)
    state, _ = feed(state, CopyTaken(work=work))
    assert feed(state, OfferAnswered(offer=1, manifest=ManifestId("m")))[0].copy == state.copy


def test_head_gives_the_data_position():
    """Rule 90: of the file, not of the record."""
    head = HeadState(state=sid(2, 3), manifest=ManifestId("m"), files=(file_of(),))
    record = record_of(4, 0, head=head)
    state, _ = feed(fresh(0), NewGeneration(record=record), GroupConnected(number=4))
    state, _ = feed(state, StatesGathered(number=4, entries=(entry(record, None, is_fresh=True),)))
    assert next_work(state) == LoadHead(number=4, head=head)
    state, _ = feed(state, StateTaken(number=4, state=sid(2, 3), skipped=PositionSet.of(8)))
    assert (state.state, state.skipped) == (sid(2, 3), PositionSet.of(8))
