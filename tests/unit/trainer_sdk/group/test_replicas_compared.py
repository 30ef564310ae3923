"""Replicas that a script makes differ: digests in words, and copies that wait for them (rule 65, ADR 0290)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from master.api.group_shares import copy_marks
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import ComparisonWanted, GroupEnded, LeftGeneration, OfferState
from master.api.messages.to_members import Released
from master.api.positions import EMPTY
from tests.unit.trainer_sdk.group.group_world import DATASET, LINEAGE
from tests.unit.trainer_sdk.group.member_cases import COPY_WANTED, feed, reports, sid, synced
from trainer_sdk.group.core.member_events import (
    AbortGroup,
    CopyNow,
    CopyTaken,
    CopyWritten,
    DigestTaken,
    FinishScript,
    GiveStep,
    ReplicasCompared,
    ReportRequested,
    StepApplied,
    StepReduced,
    StopAsked,
    TakeCopy,
    TakeDigest,
    WordsGathered,
)
from trainer_sdk.group.core.member_state import MemberPhase
from trainer_sdk.group.core.replica_digests import MOST_PARTS, digest_of
from trainer_sdk.group.core.script_work import next_work
from trainer_sdk.group.core.transitions import give
from trainer_sdk.group.port import GroupFinish
from trainer_sdk.protocol.trainer_events import FinishReason

REPLICA = {"model.weight": 1, "model.bias": 2, "optimizer.0.exp_avg": 3}


def digested(state, digests=REPLICA):
    """The state with the digest that is due."""
    work = next_work(state)
    assert isinstance(work, TakeDigest)
    return feed(state, DigestTaken(digest=digest_of(work.state, digests)))[0]


def stepped(state, *others, wish=0):
    """The state after its step, and the effects of the words: its own, and those of members with these digests."""
    state, (contributed,) = feed(give(state), StepReduced())
    mine = replace(contributed.word, copy_shards=max(contributed.word.copy_shards, wish))
    given = [replace(mine, replica=digest_of(state.state, one).digests if one else "") for one in others]
    return feed(state, WordsGathered(number=state.number, words=(mine, *given)))


def file_of(work):
    marks = copy_marks(DATASET, work.state.step, EMPTY, work.shard)
    return FileRecord(name="f", size_bytes=1, digest="d", lineage=LINEAGE, marks=marks)


def copied(*, members=(0, 1)):
    """A member that has written the copy of step 4 that all agreed on, and has not taken the next step."""
    state = digested(synced(step=3, members=members, can_compare=True, is_registered=True))
    state, _ = stepped(feed(state, COPY_WANTED)[0], *[REPLICA] * (len(members) - 1), wish=1)
    state = digested(feed(state, StepApplied())[0])
    work = next_work(state)
    assert isinstance(work, TakeCopy)
    return feed(state, CopyTaken(work=work), CopyWritten(number=work.number, file=file_of(work)))


@pytest.mark.parametrize(
    ("step", "made_in", "said", "is_due"),
    [
        (3, 1, {}, False),
        (1, 1, {}, True),  # a script's error shows in its first steps
        (4, 1, {}, True),
        (3, 0, {}, True),  # the first step of a generation
        (5, 1, {}, False),
        (6, 1, {}, True),  # the last state
        (3, 1, {"copy_shards": 1}, True),
        (3, 0, {"can_compare": False}, False),
    ],
)
def test_digest_is_taken_where_all_members_know_that_it_is_due(step, made_in, said, is_due):
    """Before a copy is taken, and at some steps between; a member alone compares nothing."""
    state = replace(synced(step=step), state=sid(made_in, step), **{"can_compare": True, **said})
    assert isinstance(next_work(state), TakeDigest) is is_due
    alone = replace(synced(step=step, members=(0,)), state=sid(made_in, step), can_compare=True)
    assert not isinstance(next_work(alone), TakeDigest)


def test_digest_is_taken_once_for_a_state():
    """Then the step is given, and given again without another one."""
    state = digested(synced(step=4, can_compare=True))
    assert isinstance(next_work(state), GiveStep)
    assert isinstance(next_work(give(state)), GiveStep)


def test_members_whose_replicas_differ_leave_and_say_in_what_and_at_whom():
    """The step is complete nowhere, so nothing more is trained with a wrong model."""
    state = digested(synced(step=4, members=(0, 1, 2), can_compare=True))
    other = {**REPLICA, "model.bias": 9, "optimizer.0.exp_avg": 8}
    for others, told in (((REPLICA, other), "trainer-0 and trainer-2"), ((other, other), "trainer-0 and trainer-1")):
        left, effects = stepped(state, *others)
        assert left.phase is MemberPhase.OUT
        (report,) = reports(effects)
        differs = f"model.bias is not the same at {told} after step 4"
        assert report == LeftGeneration(left=1, state=sid(0, 4), differs=differs)


@pytest.mark.parametrize("others", [(REPLICA, REPLICA), (REPLICA, None)])
def test_equal_replicas_go_on_and_one_without_digest_is_not_compared(others):
    state = digested(synced(step=4, members=(0, 1, 2), can_compare=True))
    assert stepped(state, *others)[0].phase is MemberPhase.COMPLETE


def test_copy_that_all_agreed_on_is_offered_once_its_state_is_compared():
    """Rule 87 is asked with the next step's words, and never where they differ."""
    written, effects = copied()
    assert reports(effects) == []
    _, effects = stepped(written, REPLICA)
    (offered,) = reports(effects)
    assert isinstance(offered, OfferState)
    left, effects = stepped(written, {**REPLICA, "model.bias": 9})
    assert left.phase is MemberPhase.OUT
    assert not any(isinstance(one, OfferState) for one in reports(effects))


def test_trainer_that_goes_waits_for_no_comparison():
    """Nobody is left to make it; the trainer's process would stay until the end of its grace."""
    gone, _ = feed(copied()[0], Released())
    assert next_work(gone) == FinishScript(finish=GroupFinish(reason=FinishReason.DRAINED))


def test_script_that_waits_for_its_checkpoint_waits_for_no_step():
    """The step that would compare its copy comes only after the wait; a shard alone helps nobody, so all is copied."""
    written, _ = copied()
    _, effects = feed(written, CopyNow())
    assert any(isinstance(one, OfferState) for one in reports(effects))
    shard = replace(written, copy=replace(written.copy, writers=("process-0", "process-1")))
    asked, effects = feed(shard, CopyNow())
    assert reports(effects) == []
    assert next_work(asked) == TakeCopy(number=2, stamp=1, state=sid(1, 4), skipped=EMPTY)


def test_copy_of_a_rank_without_a_shard_waits_for_no_step():
    """Rank 0 copies at this boundary what all agreed on; rank 1's script waits for a checkpoint of its own."""
    state = replace(digested(synced(step=4, me=1, can_compare=True, is_registered=True)), copy_shards=1)
    state, _ = feed(state, CopyNow())
    work = next_work(state)
    assert isinstance(work, TakeCopy)
    assert not work.writers
    _, effects = feed(state, CopyTaken(work=work), CopyWritten(number=work.number, file=file_of(work)))
    assert any(isinstance(one, OfferState) for one in reports(effects))


def last(members=(0, 1)):
    """A member at the last step's state, which is digested."""
    state = replace(synced(step=6, members=members), state=sid(1, 6), can_compare=True, is_registered=True)
    return digested(state) if len(members) > 1 else state


def test_last_state_is_compared_in_a_collective_of_its_own_before_it_is_copied():
    """No step follows whose words could do it; a difference is told as in a step, and a copy is not taken."""
    state = last()
    work = next_work(state)
    assert work.word.is_after_last
    same, _ = feed(state, ReplicasCompared(number=1, words=(work.word, work.word)))
    assert isinstance(next_work(same), TakeCopy)
    other = replace(work.word, replica=digest_of(state.state, {**REPLICA, "model.bias": 9}).digests)
    left, effects = feed(state, ReplicasCompared(number=1, words=(work.word, other)))
    assert left.phase is MemberPhase.OUT
    assert "model.bias is not the same" in reports(effects)[0].differs
    assert isinstance(next_work(last((0,))), TakeCopy), "alone there is nobody to compare with"


def test_stop_of_one_member_meets_the_step_of_another_and_both_leave():
    """Rule 97: the collective is the same, the words are not; the next sync makes both stop."""
    stopped, _ = feed(digested(synced(step=4, can_compare=True)), StopAsked())
    stopped = digested(stopped)
    last_word = next_work(stopped).word
    going, (contributed,) = feed(give(digested(synced(step=4, me=1, can_compare=True))), StepReduced())
    words = (last_word, contributed.word)
    assert feed(stopped, ReplicasCompared(number=1, words=words))[0].phase is MemberPhase.OUT
    assert feed(going, WordsGathered(number=1, words=words))[0].phase is MemberPhase.OUT


def test_end_aborts_the_last_comparison():
    """Rule 97: whoever waits for one that takes part in no more hears of the end."""
    _, effects = feed(last(), GroupEnded())
    assert effects == (AbortGroup(number=1),)


def test_comparison_that_one_member_is_asked_for_is_made_by_all_with_the_next_words():
    """The wish travels in a word, the digests in that after it; what was found equal is in the reports."""
    asked, _ = feed(synced(step=3, can_compare=True, is_registered=True), ComparisonWanted())
    asked = digested(asked)  # the first of the generation
    after, _ = stepped(asked, REPLICA)
    after, _ = feed(after, StepApplied())
    assert isinstance(next_work(after), TakeDigest)
    other = replace(asked, wants_comparison=False)
    state, (contributed,) = feed(give(other), StepReduced())
    words = (contributed.word, replace(contributed.word, wants_comparison=True))
    heard, _ = feed(state, WordsGathered(number=1, words=words), StepApplied())
    compared, _ = stepped(digested(heard), REPLICA)
    (report,) = reports(feed(compared, ReportRequested())[1])
    assert (report.compared.state, report.compared.members) == (sid(1, 4), 2)
    (before,) = reports(feed(heard, ReportRequested())[1])
    assert before.compared.state == sid(0, 3)
    assert report.compared.digest == before.compared.digest != ""


def test_replica_of_many_tensors_has_one_digest_for_some_together():
    """Words are small; the name is that of the first and the last of them."""
    many = {f"layer.{number}": number for number in range(2 * MOST_PARTS + 1)}
    found = digest_of(sid(1, 1), many)
    assert len(found.parts) <= MOST_PARTS
    assert found.parts[0] == "layer.0 to layer.2"
    assert digest_of(sid(1, 1), {**many, "layer.700": 1}).digests != found.digests
