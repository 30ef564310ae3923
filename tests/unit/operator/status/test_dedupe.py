"""Events that repeat are one with a count; resizes that go on are one with a larger step."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.operator.status.event_series import MOST, SERIES_S, WRITE_EVERY_S, Create, Raise, Said, say, unsay
from autoscaler.operator.status.resizes import BURST_S, Author, Resize, add

SUBJECT = ("uid", "Grown", "grows")


def test_the_same_again_is_one_more_of_a_series():
    said, what = say(Said(), SUBJECT, "a", 0.0)
    assert what == Create(name="a")
    said, what = say(said, SUBJECT, "b", 1.0)
    assert what is None
    said, what = say(said, SUBJECT, "c", WRITE_EVERY_S)
    assert what == Raise(name="a", count=3)


def test_after_a_while_it_is_a_new_event():
    said, _ = say(Said(), SUBJECT, "a", 0.0)
    _, what = say(said, SUBJECT, "b", SERIES_S + 1)
    assert what == Create(name="b")


def test_other_words_are_another_event():
    said, _ = say(Said(), SUBJECT, "a", 0.0)
    assert say(said, ("uid", "Grown", "other"), "b", 1.0)[1] == Create(name="b")


def test_what_could_not_be_written_is_said_again():
    said, _ = say(Said(), SUBJECT, "a", 0.0)
    assert say(unsay(said, SUBJECT), SUBJECT, "b", 1.0)[1] == Create(name="b")


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 100)), max_size=100))
def test_no_count_is_lost(events):
    """What has been created and raised, and what waits to be written, is what was said."""
    said, now_s, counts = Said(), 0.0, {}
    for number, (which, pause_s) in enumerate(events):
        now_s += pause_s
        subject = ("uid", "R", str(which))
        said, what = say(said, subject, f"name-{number}", now_s)
        counts[subject] = 1 if isinstance(what, Create) else counts[subject] + 1
        assert said.series[subject].count == counts[subject]
        if isinstance(what, Raise):
            assert what.count == counts[subject]


def test_memory_is_bounded():
    said = Said()
    for number in range(MOST + 10):
        said, _ = say(said, ("uid", "R", str(number)), "n", 0.0)
    assert len(said.series) == MOST


def resize(before, after, *, at_s=0.0, by=Author.EDL, cause="FreeRoom"):
    return Resize(at_s=at_s, before=before, after=after, cause=cause, by=by)


def test_a_wave_is_one_resize():
    resizes = ()
    for number in range(4):
        resizes = add(resizes, resize(8 - number, 7 - number, at_s=float(number), by=Author.SCHEDULER))
    assert [(one.before, one.after) for one in resizes] == [(8, 4)]


def test_another_way_author_or_time_is_another_resize():
    resizes = add((), resize(2, 4))
    for new in (
        resize(4, 3),
        resize(3, 2, by=Author.DRAIN),
        resize(2, 1, by=Author.DRAIN, at_s=BURST_S * 2),
    ):
        resizes = add(resizes, new)
    assert len(resizes) == 4
    for number in range(20):
        resizes = add(resizes, resize(number, number + 1, cause=str(number)))
    assert len(resizes) == 10
