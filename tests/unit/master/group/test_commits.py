"""Commits of a group's copies (rules 84 to 90), skips and suspects (94, M4), and the end (95, 96)."""

from __future__ import annotations

import pytest

from master import group
from master.api.checkpoints.audit import contradictions
from master.api.group_shares import data_of
from master.api.identities import Lineage
from master.api.master_status import JobPhase
from master.api.messages.from_members import Declare, FinalSaved, Leave
from master.api.messages.generations import CopyFailed, CopyWanted, GroupEnded, GroupPhase, StateId
from master.api.messages.to_members import OfferAnswered, Refused
from master.api.positions import PositionSet
from master.job.domain.durable_records import SECOND
from master.job.domain.job_events import HeadNamed, ManifestWriteFailed
from tests.unit.master.group.group_driver import (
    SPEC,
    STEPS,
    broken_number,
    offer_of,
    registration,
    training,
)


def answer_of(answers):
    (answer,) = [one for one in answers if isinstance(one, OfferAnswered)]
    return answer


def test_a_copy_becomes_head_and_its_data_are_those_of_its_step():
    """Rule 90: positions and quarantine are the file's."""
    driver, (first,) = training("t0", step=3)
    skipped = PositionSet.span(1, 3)
    answer = answer_of(driver.offer(first, 3, 1, skipped=skipped))
    head = driver.durable.head
    assert answer.manifest == head.id
    assert (head.data, head.quarantine) == (data_of(SPEC, 3) - skipped, skipped)
    assert head.state == StateId(lineage=Lineage(1), generation=1, step=3)
    assert contradictions(head) == []
    assert answer_of(driver.offer(first, 3, 1, skipped=skipped)).manifest == head.id


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stamp": 7}, "its stamp is generation 7"),
        ({"stamp": 0}, "its stamp is generation 0"),
        ({"step": 0}, "head is of step 0"),
        ({"step": STEPS + 1}, "head is of step 0"),
        ({"shard": 2, "shards": 2}, "it is shard 2 of 2"),
        ({"skipped": PositionSet.span(60, 61)}, "positions of later steps"),
    ],
)
def test_an_offer_that_is_no_ancestor_is_refused_with_words(change, reason):
    """Rule 87."""
    driver, (first,) = training("t0", step=3)
    fields = {"step": 3, "stamp": 1, "made_in": 1} | change
    if fields["step"] > STEPS:
        own = StateId(lineage=Lineage(1), generation=1, step=fields["step"])
        offered = offer_of(StateId(lineage=Lineage(1), generation=1, step=3), 1)
        answers = driver.say(
            first, type(offered)(**{name: getattr(offered, name) for name in offered.__slots__} | {"state": own})
        )
    else:
        answers = driver.offer(first, fields.pop("step"), fields.pop("stamp"), **fields)
    answer = answer_of(answers)
    assert answer.manifest is None
    assert reason in answer.reason
    assert driver.durable.head is None


def test_a_copy_of_a_generation_left_behind_is_refused():
    """Rules 76, 87: from the next record on an older stamp fails; one that was kept through the sync has the new."""
    driver, (first, second) = training("t0", "t1", step=3)
    for one in (first, second):
        driver.report(one, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    assert driver.record.number == 2
    assert answer_of(driver.offer(first, 3, 1)).manifest is None
    assert answer_of(driver.offer(first, 3, 2, made_in=1)).manifest is not None


def test_the_stamp_of_the_generation_that_a_plan_is_from_is_current():
    driver, (first,) = training("t0", step=3)
    driver.join("t1")
    driver.pass_time(1.5)
    assert driver.record.planned_from == 1
    assert answer_of(driver.offer(first, 3, 1)).manifest is not None


def test_shards_of_one_state_make_a_checkpoint():
    """Rule 88: all shards of one id; those of another state are none."""
    driver, (first, second) = training("t0", "t1", step=4)
    assert driver.offer(first, 3, 1, shard=0, shards=2) == []
    assert driver.offer(second, 4, 1, shard=1, shards=2) == []
    assert driver.durable.head is None
    driver.offer(first, 4, 1, shard=0, shards=2)
    assert [file.name for file in driver.durable.head.files] == ["s4-1-0", "s4-1-1"]
    assert contradictions(driver.durable.head) == []


def test_older_shard_does_not_displace_a_newer_one():
    """Rule 88: its writer is told, and drops it."""
    driver, (first, second) = training("t0", "t1", step=4)
    driver.offer(first, 4, 1, shard=0, shards=2)
    assert "step 4 is under way" in answer_of(driver.offer(second, 3, 1, shard=1, shards=2)).reason
    driver.offer(second, 4, 1, shard=1, shards=2)
    assert driver.durable.head.step == 4


def test_shards_of_other_arrays_make_no_checkpoint():
    """Rule 88: two trainers do not replicate the same; the status says so."""
    driver, (first, second) = training("t0", "t1", step=4)
    driver.offer(first, 4, 1, shard=0, shards=2, contents="a")
    assert (
        "consist of different arrays" in answer_of(driver.offer(second, 4, 1, shard=1, shards=2, contents="b")).reason
    )
    assert driver.durable.head is None
    assert "consist of different arrays" in group.status(driver.state, driver.now).checkpoint_problem


def test_shard_that_could_not_be_written_gives_the_others_up():
    """Rule 88: before and after they are offered; the status names the trainer, and the next copy clears it."""
    driver, (first, second) = training("t0", "t1", step=4, checkpoint_every_ns=5 * SECOND)
    own = StateId(lineage=Lineage(1), generation=1, step=4)
    driver.offer(first, 4, 1, shard=0, shards=2)
    failed = CopyFailed(state=own, shards=2, reason="no space left")
    (answer,) = [
        said for to, said in said_by(driver, second, failed) if to == first and isinstance(said, OfferAnswered)
    ]
    assert answer.manifest is None
    assert group.status(driver.state, driver.now).checkpoint_problem == "t1: no space left"
    assert answer_of(driver.offer(first, 4, 1, shard=0, shards=2)).manifest is None
    for one in (first, second):
        driver.progress(one, 1, 5)
    driver.pass_time(61)
    assert driver.told(CopyWanted, first)
    assert driver.offer(first, 5, 1, shard=0, shards=2) == []
    driver.offer(second, 5, 1, shard=1, shards=2)
    assert driver.durable.head.step == 5
    assert group.status(driver.state, driver.now).checkpoint_problem == ""


def said_by(driver, member, message):
    """What the master says to anybody when this member says that."""
    before = len(driver.sent)
    driver.say(member, message)
    return driver.sent[before:]


def test_shards_offered_in_a_generation_that_broke_are_awaited_anew():
    """Rules 86, 88: the shard of who is lost does not come, and a whole copy of the same state is taken."""
    driver, (first, second) = training("t0", "t1", step=3)
    driver.offer(first, 3, 1, shard=0, shards=2)
    for one in (first, second):
        driver.report(one, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    assert driver.record.number == 2
    assert driver.offer(second, 3, 2, made_in=1, shard=1, shards=2) == []
    assert driver.durable.head is None
    assert answer_of(driver.offer(first, 3, 2, made_in=1)).manifest is not None


def test_head_is_not_swapped_under_a_record_that_came_meanwhile():
    """Rule 87: compared in the transaction, after the record; the writer asks again."""
    driver, (first, second) = training("t0", "t1", step=3)
    driver.writes_go_through = False
    driver.report(first, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    driver.report(second, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    assert driver.offer(first, 3, 1) == []
    driver.let_go()
    assert driver.record.number == 2
    assert driver.durable.head is None
    assert not driver.state.is_over
    assert answer_of(driver.offer(first, 3, 2, made_in=1)).manifest is not None


def test_the_first_rank_is_asked_for_a_copy_in_turn():
    driver, (first, second) = training("t0", "t1", checkpoint_every_ns=5 * SECOND)
    for step in range(2, 9):
        driver.progress(first, 1, step)
        driver.progress(second, 1, step)
        driver.pass_time(1)
    assert driver.told(CopyWanted, first)
    assert driver.told(CopyWanted, second) == []


def test_another_layout_is_refused():
    """It must be equal on all ranks, from the first declaration on, under every master."""
    driver, (first,) = training("t0")
    (answer,) = driver.say(first, Declare(dataset=SPEC, layout="other"))
    assert (type(answer), answer.field) == (Refused, "layout")
    driver.start()
    driver.say(first, registration(first, generation=1))
    (answer,) = driver.say(first, Declare(dataset=SPEC, layout="other"))
    assert (type(answer), answer.field) == (Refused, "layout")


# ---- the end --------------------------------------------------------------------------------------------------------


def finish(driver, members):
    number = driver.record.number
    for one in members:
        driver.progress(one, number, STEPS, GroupPhase.DONE)
    assert driver.told(CopyWanted, members[0])
    driver.offer(members[0], STEPS, number)


def test_the_end_is_said_when_head_holds_the_last_step():
    """Rule 95: the last step is not the end."""
    driver, members = training("t0", "t1", step=STEPS)
    assert not any(driver.told(GroupEnded, one) for one in members)
    finish(driver, members)
    head = driver.state.head_state
    assert head.state.step == STEPS
    assert [driver.told(GroupEnded, one) for one in members] == [[GroupEnded(head=head)]] * 2
    assert group.status(driver.state, driver.now).phase is JobPhase.COMPLETE


def test_one_runs_the_final_hook_and_another_if_it_is_lost():
    """Rule 96: at least once, then END to everybody who asks."""
    driver, members = training("t0", "t1", step=STEPS)
    for one in members:
        driver.say(one, registration(one, generation=1, has_final_hook=True))
    finish(driver, members)
    savers = [one for one in members if GroupEnded(final_saver=True) in driver.told(GroupEnded, one)]
    assert len(savers) == 1
    assert group.status(driver.state, driver.now).phase is JobPhase.SAVING
    driver.break_stream(savers[0])
    driver.pass_time(2.5)
    (other,) = [one for one in members if one not in savers]
    assert GroupEnded(final_saver=True) in driver.told(GroupEnded, other)
    driver.say(other, FinalSaved())
    assert GroupEnded(head=driver.state.head_state) in driver.told(GroupEnded, other)


def saving(*names):
    """A group whose last step is committed, and the one that runs the final hook before the others."""
    driver, members = training(*names, step=STEPS)
    for one in members:
        driver.say(one, registration(one, generation=1, has_final_hook=True))
    finish(driver, members)
    (saver,) = [one for one in members if GroupEnded(final_saver=True) in driver.told(GroupEnded, one)]
    return driver, members, saver


def test_end_is_told_once_it_is_durable_that_the_final_hook_has_run():
    """Rule 96: nobody hears END before, and no one else is asked to run it meanwhile."""
    driver, members, saver = saving("t0", "t1")
    driver.writes_go_through = False
    driver.say(saver, FinalSaved())
    driver.say(saver, Leave())
    driver.pass_time(5)
    (other,) = [one for one in members if one != saver]
    assert driver.told(GroupEnded, other) == []
    assert group.status(driver.state, driver.now).phase is JobPhase.SAVING
    driver.let_go()
    assert driver.durable.final_save == driver.durable.head.id
    assert driver.told(GroupEnded, other) == [GroupEnded(head=driver.state.head_state)]


def test_next_master_has_no_final_hook_run_again():
    """It reads that the hook has run on this head, and tells END at once."""
    driver, members, saver = saving("t0", "t1")
    driver.say(saver, FinalSaved())
    driver.sent.clear()
    driver.start()
    (other,) = [one for one in members if one != saver]
    own = driver.durable.head.state
    driver.say(other, registration(other, generation=1, state=own, has_final_hook=True))
    driver.say(other, Declare(dataset=driver.spec, layout="l"))
    assert driver.told(GroupEnded, other) == [GroupEnded(head=driver.state.head_state)]
    assert group.status(driver.state, driver.now).phase is JobPhase.COMPLETE


def test_master_that_dies_before_that_is_durable_has_the_hook_run_again():
    """At least once: what was only heard is forgotten."""
    driver, members, saver = saving("t0", "t1")
    driver.writes_go_through = False
    driver.say(saver, FinalSaved())
    driver.sent.clear()
    driver.start()
    (other,) = [one for one in members if one != saver]
    driver.say(other, registration(other, generation=1, state=driver.durable.head.state, has_final_hook=True))
    assert GroupEnded(final_saver=True) in driver.told(GroupEnded, other)


def test_status_adds_up():
    """M4: the places of the positions add up to all."""
    driver, (first,) = training("t0", step=4)
    driver.offer(first, 2, 1)
    status = group.status(driver.state, driver.now)
    places = status.positions
    assert (places.committed, places.done, places.total) == (16, 16, 80)
    assert places.todo + places.done + places.committed + places.quarantined == places.total
    assert (status.generation, status.group_step, status.members[0].group_phase) == (1, 4, "compute")


def test_members_come_and_go_while_head_cannot_be_written():
    """A folder that hangs held back the store's answer, and with it each record: a trainer's loss stopped the group."""
    driver, (first, second) = training("t0", "t1", step=3)
    driver.names_head = False
    driver.offer(first, 3, 1)
    driver.say(second, Leave(reason="done"))
    assert broken_number(driver, first) == 1
    driver.report(first, 1, StateId(lineage=Lineage(1), generation=1, step=3))
    assert (driver.record.number, driver.names()) == (2, ["t0"])
    assert driver.record.head.manifest == driver.durable.head.id


def test_a_checkpoint_is_acknowledged_once_head_names_it():
    """What is acknowledged survives the loss of the store; the newest stamp of an offer is what is answered (87)."""
    driver, (first,) = training("t0", step=3)
    driver.names_head = False
    assert driver.offer(first, 3, 1) == []
    assert driver.offer(first, 3, 1, offer=2) == []
    assert driver.offer(first, 4, 1) == [], "nor is another one committed meanwhile"
    head = driver.durable.head.id
    driver.feed(HeadNamed(manifest=head))
    assert answer_of(driver.told(OfferAnswered, first)) == OfferAnswered(offer=2, manifest=head)
    driver.names_head = True
    assert answer_of(driver.offer(first, 4, 1)).manifest == driver.durable.head.id != head


def test_the_end_is_said_once_head_names_the_last_checkpoint():
    """Who has no store resumes from HEAD, so the job would train again what it has said to be done."""
    driver, (first,) = training("t0", step=STEPS)
    driver.names_head = False
    driver.offer(first, STEPS, 1)
    assert (driver.told(GroupEnded, first), group.status(driver.state, driver.now).phase) == ([], JobPhase.COMMITTING)
    driver.feed(HeadNamed(manifest=driver.durable.head.id))
    assert driver.told(GroupEnded, first)
    assert group.status(driver.state, driver.now).phase is JobPhase.COMPLETE


def test_the_next_master_says_the_end_once_head_names_the_last_checkpoint():
    """The one before may have ended between the store and HEAD."""
    driver, (first,) = training("t0", step=STEPS)
    driver.names_head = False
    driver.offer(first, STEPS, 1)
    driver.sent.clear()
    driver.start()
    own = driver.durable.head.state
    driver.say(first, registration(first, generation=1, state=own))
    driver.say(first, Declare(dataset=driver.spec, layout="l"))
    driver.pass_time(30)
    assert (driver.told(GroupEnded, first), group.status(driver.state, driver.now).phase) == ([], JobPhase.TRAINING)
    driver.feed(HeadNamed(manifest=driver.durable.head.id))
    assert driver.told(GroupEnded, first)
    assert group.status(driver.state, driver.now).phase is JobPhase.COMPLETE


def test_the_next_master_acknowledges_a_checkpoint_once_head_names_it():
    """A writer that asks it again knows of a checkpoint which would be lost with the store (I11)."""
    driver, (first,) = training("t0", step=3)
    driver.names_head = False
    driver.offer(first, 3, 1)
    driver.start()
    own = driver.durable.head.state
    driver.say(first, registration(first, generation=1, state=own))
    assert driver.offer(first, 3, 1, offer=2) == []
    driver.feed(HeadNamed(manifest=driver.durable.head.id))
    assert answer_of(driver.offer(first, 3, 1, offer=2)).manifest == driver.durable.head.id


def test_last_copy_is_asked_for_again_after_the_pause():
    """Where the master cannot write the manifest each copy is in vain: the pause doubles, also after the last step."""
    driver, (first,) = training("t0", step=STEPS)
    driver.writes_manifests, asked = False, []
    for offer in range(1, 6):
        driver.offer(first, STEPS, 1, offer=offer)
        before, waited_s = len(driver.told(CopyWanted, first)), 0
        driver.feed(ManifestWriteFailed(manifest=driver.state.commit.manifest.id, reason="the disk is full"))
        while len(driver.told(CopyWanted, first)) == before:
            driver.pass_time(0.5)
            waited_s += 0.5
        asked.append(waited_s)
    assert asked == sorted(asked)
    assert 0.0 < asked[0] < asked[-1]
