"""Events that repeat are one with a count; resizes that go on are one with a larger step."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.operator.status.event_series import (
    MOST,
    SERIES_S,
    WRITE_EVERY_S,
    CreateEvent,
    RaiseCount,
    RecentEvents,
    forget_event,
    plan_event,
)
from autoscaler.operator.status.status_inputs import BURST_S, ResizeAuthor, ResizeRecord, add_resize

SUBJECT = ("uid", "Grown", "grows")


def test_the_same_again_is_one_more_of_a_series():
    said, what = plan_event(RecentEvents(), SUBJECT, "a", 0.0)
    assert what == CreateEvent(name="a")
    said, what = plan_event(said, SUBJECT, "b", 1.0)
    assert what is None
    said, what = plan_event(said, SUBJECT, "c", WRITE_EVERY_S)
    assert what == RaiseCount(name="a", count=3)


def test_after_a_while_it_is_a_new_event():
    said, _ = plan_event(RecentEvents(), SUBJECT, "a", 0.0)
    _, what = plan_event(said, SUBJECT, "b", SERIES_S + 1)
    assert what == CreateEvent(name="b")


def test_other_words_are_another_event():
    said, _ = plan_event(RecentEvents(), SUBJECT, "a", 0.0)
    assert plan_event(said, ("uid", "Grown", "other"), "b", 1.0)[1] == CreateEvent(name="b")


def test_what_could_not_be_written_is_said_again():
    said, _ = plan_event(RecentEvents(), SUBJECT, "a", 0.0)
    assert plan_event(forget_event(said, SUBJECT), SUBJECT, "b", 1.0)[1] == CreateEvent(name="b")


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 100)), max_size=100))
def test_no_count_is_lost(events):
    """What has been created and raised, and what waits to be written, is what was said."""
    said, now_s, counts = RecentEvents(), 0.0, {}
    for number, (which, pause_s) in enumerate(events):
        now_s += pause_s
        subject = ("uid", "R", str(which))
        said, what = plan_event(said, subject, f"name-{number}", now_s)
        counts[subject] = 1 if isinstance(what, CreateEvent) else counts[subject] + 1
        assert said.series[subject].count == counts[subject]
        if isinstance(what, RaiseCount):
            assert what.count == counts[subject]


def test_memory_is_bounded():
    said = RecentEvents()
    for number in range(MOST + 10):
        said, _ = plan_event(said, ("uid", "R", str(number)), "n", 0.0)
    assert len(said.series) == MOST


def resize(before, after, *, at_s=0.0, by=ResizeAuthor.EDL, cause="FreeCapacity"):
    return ResizeRecord(at_s=at_s, before=before, after=after, cause=cause, by=by)


def test_a_wave_is_one_resize():
    resizes = ()
    for number in range(4):
        resizes = add_resize(resizes, resize(8 - number, 7 - number, at_s=float(number), by=ResizeAuthor.SCHEDULER))
    assert [(one.before, one.after) for one in resizes] == [(8, 4)]


def test_another_way_author_or_time_is_another_resize():
    resizes = add_resize((), resize(2, 4))
    for new in (
        resize(4, 3),
        resize(3, 2, by=ResizeAuthor.DRAIN),
        resize(2, 1, by=ResizeAuthor.DRAIN, at_s=BURST_S * 2),
    ):
        resizes = add_resize(resizes, new)
    assert len(resizes) == 4
    for number in range(20):
        resizes = add_resize(resizes, resize(number, number + 1, cause=str(number)))
    assert len(resizes) == 10
