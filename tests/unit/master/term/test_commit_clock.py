"""The time of commits, for metrics: of those that come to an end, each from the begin of its own attempt."""

from master.job.domain.durable_records import SECOND, Instant
from master.term.counters import CommitClock, Counters


def at(seconds):
    return Instant(seconds * SECOND)


def test_a_commit_is_timed_from_the_begin_of_its_attempt():
    """Phases in between change nothing."""
    counts = Counters()
    clock = CommitClock(counts)
    for second in (10, 11, 12):
        clock.observe(is_under_way=True, now=at(second))
    clock.count(at(14))
    assert (counts.commits, counts.commits_timed, counts.commit_ns) == (1, 1, 4 * SECOND)


def test_an_attempt_that_is_given_up_counts_for_nothing():
    counts = Counters()
    clock = CommitClock(counts)
    clock.observe(is_under_way=True, now=at(10))
    clock.observe(is_under_way=False, now=at(20))
    clock.observe(is_under_way=True, now=at(30))
    clock.count(at(31))
    clock.observe(is_under_way=False, now=at(31))
    assert (counts.commits_timed, counts.commit_ns) == (1, SECOND)


def test_a_commit_whose_begin_nobody_saw_is_counted_without_a_time():
    """One that a term before had begun."""
    counts = Counters()
    CommitClock(counts).count(at(5))
    assert (counts.commits, counts.commits_timed, counts.commit_ns) == (1, 0, 0)
