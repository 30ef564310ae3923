"""Pushes to buckets of two copies: an owner applies what its backup has confirmed at this version (rules 61, 62)."""

from dataclasses import replace

import pytest

from master.api.identities import Incarnation, Lineage, MemberName, ServerPlace, Version
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.pserver.core.messages import (
    BackupAnswer,
    BackupPush,
    Push,
    PushAnswer,
    PushTarget,
    PushVerdict,
    Ruling,
)
from trainer_sdk.pserver.core.pushes import handle_backup_push, handle_push, parse_backup_answer
from trainer_sdk.pserver.core.server_events import ApplyLive
from trainer_sdk.pserver.core.server_state import BucketGroup, ServerState

ALL = PositionSet.span(0, 8)
BATCH = PositionSet.span(0, 32)
NOW = Version(5)


def place(incarnation):
    return ServerPlace(name=MemberName("b"), incarnation=Incarnation(incarnation), address="127.0.0.1:1", ordinal=1)


BACKUP = place("backup")


@pytest.fixture
def owner():
    group = BucketGroup(buckets=ALL, version=NOW, applied=EMPTY, skipped=EMPTY, backup=BACKUP)
    return ServerState(incarnation=Incarnation("owner"), lineage=Lineage(1), groups=(group,))


@pytest.fixture
def backup(owner):
    return replace(owner, groups=(replace(owner.groups[0], backup=None, is_backup=True),))


def pushed(positions=BATCH, *, version=NOW, buckets=ALL):
    return Push(lineage=Lineage(1), positions=positions, targets=(PushTarget(buckets=buckets, version=version),))


def said(verdict=PushVerdict.APPLIED, *, by="backup", version=NOW, buckets=ALL, positions=EMPTY):
    ruling = Ruling(buckets=buckets, verdict=verdict, positions=positions)
    return (BackupAnswer(backup=Incarnation(by), version=version, ruling=ruling),)


def verdicts(step):
    return {ruling.verdict: ruling.buckets for ruling in step.answer.rulings}


def test_a_push_goes_to_its_backup_first(owner):
    """Nothing has changed, nothing is answered; it is asked at the version that the owner has."""
    step = handle_push(owner, pushed())
    assert step.backup_pushes == (BackupPush(to=BACKUP, targets=(PushTarget(buckets=ALL, version=NOW),)),)
    assert (step.state, step.effects, step.answer.rulings) == (owner, (), ())


@pytest.mark.parametrize("verdict", [PushVerdict.APPLIED, PushVerdict.REPEAT])
def test_what_the_backup_has_is_applied(owner, verdict):
    """Whether it took it now or had it already."""
    step = handle_push(owner, pushed(), said(verdict))
    assert verdicts(step) == {PushVerdict.APPLIED: ALL}
    assert step.effects == (ApplyLive(buckets=ALL),)
    assert step.state.groups[0].applied == BATCH
    assert step.state.groups[0].backup == BACKUP


@pytest.mark.parametrize("version", [NOW - 1, NOW + 1])
def test_a_word_of_another_version_confirms_nothing(owner, version):
    """Between two versions the copies may have been made anew: what was so before need not be so now."""
    step = handle_push(owner, pushed(), said(version=Version(version)))
    assert verdicts(step) == {PushVerdict.NOT_YET: ALL}
    assert (step.state, step.effects, step.backup_pushes) == (owner, (), ())


def test_a_word_of_another_process_confirms_nothing(owner):
    """The one that was the backup before, say, or its next life."""
    step = handle_push(owner, pushed(), said(by="another"))
    assert verdicts(step) == {PushVerdict.NOT_YET: ALL}
    assert (step.state, step.effects) == (owner, ())


@pytest.mark.parametrize(
    "verdict", sorted(set(PushVerdict) - {PushVerdict.APPLIED, PushVerdict.REPEAT, PushVerdict.OVERLAP})
)
def test_a_backup_that_did_not_take_it_keeps_its_owner_from_it(owner, verdict):
    """An owner never goes on without its backup by itself."""
    step = handle_push(owner, pushed(), said(verdict))
    assert verdicts(step) == {PushVerdict.NOT_YET: ALL}
    assert (step.state, step.effects) == (owner, ())


def test_a_backup_that_is_ahead_has_the_push_split(owner):
    """What it has of this push already was confirmed to an owner that is gone: the trainer sends that part alone."""
    ahead = PositionSet.span(0, 8)
    step = handle_push(owner, pushed(), said(PushVerdict.OVERLAP, positions=BATCH - ahead))
    assert [(one.verdict, one.positions) for one in step.answer.rulings] == [(PushVerdict.SPLIT, ahead)]
    assert (step.state, step.effects) == (owner, ())


def test_silence_about_some_buckets_confirms_the_others_alone(owner):
    """Bucket by bucket, as every judgement of a push."""
    told, untold = PositionSet.span(0, 3), PositionSet.span(3, 8)
    step = handle_push(owner, pushed(), said(buckets=told))
    assert verdicts(step) == {PushVerdict.APPLIED: told, PushVerdict.NOT_YET: untold}
    assert step.effects == (ApplyLive(buckets=told),)
    applied = {tuple(group.buckets): group.applied for group in step.state.groups}
    assert applied == {tuple(told): BATCH, tuple(untold): EMPTY}


def test_a_repeated_push_asks_nobody(owner):
    """The owner has it, so its backup had it before."""
    state = handle_push(owner, pushed(), said()).state
    step = handle_push(state, pushed())
    assert verdicts(step) == {PushVerdict.REPEAT: ALL}
    assert step.backup_pushes == ()


@pytest.mark.parametrize(("version", "taken"), [(NOW, True), (NOW - 1, False), (NOW + 1, False)])
def test_a_backup_takes_what_is_passed_on_at_its_own_version_alone(backup, version, taken):
    """An owner of another version may not be the owner any more."""
    step = handle_backup_push(backup, pushed(version=Version(version)))
    assert (verdicts(step) == {PushVerdict.APPLIED: ALL}) is taken
    assert bool(step.effects) is taken
    assert (step.state.groups[0].applied == BATCH) is taken


def test_a_backup_takes_nothing_from_trainers_and_an_owner_nothing_that_is_passed_on(owner, backup):
    """Else a push could be in one copy alone, or twice in one."""
    for step in (handle_push(backup, pushed()), handle_backup_push(owner, pushed())):
        assert PushVerdict.APPLIED not in verdicts(step)
        assert step.effects == ()


def test_an_answer_counts_for_the_version_at_which_it_was_asked():
    """Two versions asked in one push: each word keeps its own."""
    low, high = PositionSet.span(0, 4), PositionSet.span(4, 8)
    targets = (PushTarget(buckets=low, version=Version(4)), PushTarget(buckets=high, version=Version(5)))
    answer = PushAnswer(
        lineage=Lineage(1), rulings=(Ruling(buckets=ALL, verdict=PushVerdict.APPLIED, positions=EMPTY),)
    )
    words = parse_backup_answer(BackupPush(to=BACKUP, targets=targets), answer)
    assert {word.version: word.ruling.buckets for word in words} == {4: low, 5: high}
    assert {word.backup for word in words} == {BACKUP.incarnation}
