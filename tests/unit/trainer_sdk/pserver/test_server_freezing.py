"""When a bucket that has to go is frozen: after what goes ahead of it, and no more at once than bytes allow."""

import pytest

from master.api.identities import BucketId, Incarnation, Lineage, MemberName, ServerPlace, Version
from master.api.messages.to_members import Freeze
from master.api.positions import EMPTY
from trainer_sdk.pserver.core.freeze_queue import FROZEN_BYTES, FreezeQueue
from trainer_sdk.pserver.core.server_events import SendCopy

LIGHT = FROZEN_BYTES // 100


def place(target):
    return ServerPlace(
        name=MemberName(f"s{target}"), incarnation=Incarnation(f"i{target}"), address="h:1", ordinal=target
    )


def order(bucket, *, version=0, target=1, lineage=1):
    return Freeze(lineage=Lineage(lineage), bucket=BucketId(bucket), version=Version(version), target=place(target))


def copy(bucket, *, is_full=False):
    return SendCopy(
        lineage=Lineage(1),
        bucket=BucketId(bucket),
        version=Version(1),
        target=place(1),
        is_final=True,
        is_full=is_full,
        applied=EMPTY,
        skipped=EMPTY,
    )


def due(freezing, size_bytes=LIGHT):
    return [one.bucket for one in freezing.take_due(lambda _: size_bytes)]


@pytest.fixture
def freezing():
    return FreezeQueue()


def keep(freezing, *buckets, goes_ahead=True, **parts):
    for bucket in buckets:
        freezing.add(order(bucket, **parts))
        if not goes_ahead:
            freezing.mark_ready(order(bucket, **parts))


def test_a_bucket_of_which_nothing_goes_ahead_is_due_at_once(freezing):
    keep(freezing, 3, goes_ahead=False)
    assert due(freezing) == [3]
    assert due(freezing) == []


def test_a_bucket_is_not_due_before_what_goes_ahead_has_arrived(freezing):
    keep(freezing, 3)
    assert freezing.has(order(3))
    assert due(freezing) == []
    freezing.mark_ready(order(3))
    assert due(freezing) == [3]
    assert not freezing.has(order(3))


def test_those_that_are_ready_do_not_wait_for_others(freezing):
    keep(freezing, 1, 2, 3)
    for bucket in (3, 1):
        freezing.mark_ready(order(bucket))
    assert due(freezing) == [1, 3]


def test_no_more_are_frozen_than_their_bytes_allow_and_one_always(freezing):
    """A batch waits for all that is frozen; a bucket that is heavier than the limit goes alone."""
    keep(freezing, 1, 2, 3, goes_ahead=False)
    (first,) = due(freezing, 2 * FROZEN_BYTES)
    freezing.mark_sent(copy(first), 2 * FROZEN_BYTES)
    assert due(freezing) == []
    freezing.mark_ended(copy(first))
    assert due(freezing, FROZEN_BYTES // 2) == [2, 3]


def test_what_is_frozen_for_one_target_holds_up_no_other(freezing):
    freezing.mark_sent(copy(9), FROZEN_BYTES)
    keep(freezing, 1, goes_ahead=False)
    keep(freezing, 2, goes_ahead=False, target=2)
    assert due(freezing) == [2]


def test_what_cannot_go_ahead_is_not_frozen_and_may_be_asked_for_again(freezing):
    keep(freezing, 3)
    freezing.drop(order(3))
    assert not freezing.has(order(3))
    assert due(freezing) == []
    keep(freezing, 3)
    freezing.mark_ready(order(3))
    assert due(freezing) == [3]


@pytest.mark.parametrize("other", [{"version": 1}, {"lineage": 2}, {"target": 2}], ids=str)
def test_what_becomes_of_an_earlier_move_says_nothing_of_a_later_one(freezing, other):
    """It was undone, or rolled back, and another one begun while the first copy was on its way."""
    keep(freezing, 3)
    keep(freezing, 3, **other)
    freezing.mark_ready(order(3))
    freezing.drop(order(3))
    assert not freezing.has(order(3))
    assert due(freezing) == []
    freezing.mark_ready(order(3, **other))
    assert due(freezing) == [3]


def test_a_full_copy_is_under_way_though_the_difference_that_it_replaces_has_ended(freezing):
    """It is ordered while its sender still has the other one in hand."""
    freezing.mark_sent(copy(9), LIGHT)
    freezing.mark_sent(copy(9, is_full=True), FROZEN_BYTES)
    freezing.mark_ended(copy(9))
    keep(freezing, 3, goes_ahead=False)
    assert due(freezing) == []
    freezing.mark_ended(copy(9, is_full=True))
    assert due(freezing) == [3]
