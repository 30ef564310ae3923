"""Each occasion is told once, while it is news, and no faster than the limit; by examples and in any order of looks."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.operator.notices.due_notices import NoticeHistory, NoticeKind, NoticeRule, Occasion, plan_notices

RULE = NoticeRule(news_s=100.0, burst=3, one_more_every_s=10.0)
NOW = 1_800_000_000.0


def occasion(number=0, *, due=NOW, kind=NoticeKind.JOB_FAILED, since=None, namespace="team-a"):
    return Occasion(
        kind=kind,
        namespace=namespace,
        name=f"job-{number}",
        uid=f"{namespace}-{number}",
        since_unix_s=due if since is None else since,
        due_unix_s=due,
    )


def test_an_occasion_is_told_once():
    first = plan_notices(NoticeHistory(), [occasion()], RULE, NOW)
    second = plan_notices(first.history, [occasion()], RULE, NOW + 5)
    assert [len(first.notices), len(second.notices)] == [1, 0]


def test_the_same_job_is_told_of_again_when_it_happens_again():
    """A job that was resumed and fails once more: another instant, another occasion."""
    first = plan_notices(NoticeHistory(), [occasion()], RULE, NOW)
    assert plan_notices(first.history, [occasion(due=NOW + 60)], RULE, NOW + 61).notices


@pytest.mark.parametrize(("at", "told"), [(NOW - 1, 0), (NOW, 1), (NOW + 99, 1), (NOW + 100, 0)])
def test_an_occasion_is_news_for_a_while(at, told):
    """A new leader tells nothing that its predecessor will have told."""
    assert len(plan_notices(NoticeHistory(), [occasion()], RULE, at).notices) == told


def test_what_the_limit_holds_back_is_told_later_the_oldest_first():
    many = [occasion(number, due=NOW - number) for number in range(5)]
    first = plan_notices(NoticeHistory(), many, RULE, NOW)
    assert [one.name for one in first.notices] == ["job-4", "job-3", "job-2"]
    assert first.held_back == 2
    second = plan_notices(first.history, many, RULE, NOW + 9)
    assert (second.notices, second.held_back) == ((), 2)
    third = plan_notices(second.history, many, RULE, NOW + 10)
    assert [one.name for one in third.notices] == ["job-1"]


def look_on(known, seconds, *, history=None, every_s=5):
    """What is told, as (seconds since NOW, namespace), and the history after it; `known`: by second, what stands."""
    history, told = history or NoticeHistory(), []
    for at_s in range(0, seconds, every_s):
        plan = plan_notices(history, known(at_s), RULE, NOW + at_s)
        told += [(at_s, one.namespace) for one in plan.notices]
        history = plan.history
    return told, history


def test_many_occasions_of_one_namespace_keep_no_others_from_the_channel():
    """By age alone, what fails later would be no news before its turn came."""
    many = [occasion(number, due=NOW - number / 10) for number in range(40)]
    late = [occasion(number, due=NOW + 50, namespace="team-b") for number in range(2)]
    told, _ = look_on(lambda at_s: many + late * (at_s >= 50), 100)
    assert [at_s for at_s, namespace in told if namespace == "team-b"] == [50, 70]
    assert [at_s for at_s, namespace in told if namespace == "team-a" and at_s >= 50] == [60, 80, 90]


def test_a_namespace_whose_jobs_fail_one_by_one_does_not_go_first_each_time():
    """Each is told before the next fails, so nothing of its namespace waits: its last turn counts all the same."""
    many = [occasion(number) for number in range(40)]
    told, _ = look_on(lambda at_s: [*many, occasion(at_s // 10, due=NOW + at_s // 10 * 10, namespace="team-b")], 100)
    shares = [[namespace for at_s, namespace in told if at_s >= 20].count(team) for team in ("team-a", "team-b")]
    assert sum(shares) == 8
    assert abs(shares[0] - shares[1]) <= 1


def test_what_was_held_back_until_it_is_no_news_is_lost_and_told_of_once():
    """What was not due here, and what is gone meanwhile, is not."""
    many = [occasion(number, due=NOW - number) for number in range(5)]
    first = plan_notices(NoticeHistory(), many, RULE, NOW)
    rule = replace(RULE, one_more_every_s=1e6)
    second = plan_notices(first.history, [*many[:1], occasion(7, due=NOW - 300)], rule, NOW + 100)
    assert [one.name for one in second.lost] == ["job-0"]
    assert plan_notices(second.history, many, rule, NOW + 105).lost == ()


@pytest.mark.parametrize(("again_after_s", "told"), [(0.0, 10), (40.0, 3)])
def test_a_decision_that_comes_and_goes_does_not_fill_the_channel(again_after_s, told):
    """Each time it is another occasion, of the same pod; another pod's is told meanwhile."""
    rule, history, notices = replace(RULE, burst=100), NoticeHistory(), []
    for second in range(0, 100, 10):
        pod = occasion(1, due=NOW + second, kind=NoticeKind.GPUS_GIVEN_BACK)
        plan = plan_notices(history, [replace(pod, again_after_s=again_after_s)], rule, NOW + second)
        history, notices = plan.history, [*notices, *plan.notices]
    assert len(notices) == told
    assert plan_notices(history, [occasion(2, due=NOW + 90, kind=NoticeKind.GPUS_GIVEN_BACK)], rule, NOW + 90).notices


LOOKS = st.lists(
    st.tuples(st.floats(-50, 200), st.sets(st.integers(0, 12))), min_size=1, max_size=25
)  # seconds since the look before, and which occasions stand


@given(looks=LOOKS, dues=st.lists(st.floats(-300, 600), min_size=13, max_size=13))
def test_any_row_of_looks_keeps_all_promises(looks, dues):
    """Once each, none too early or too late, never above the limit, and what is remembered stays small.

    The clock may go back; occasions come and go, and come back.
    """
    history, now, told, sent_at = NoticeHistory(), NOW, [], []
    newest = -inf
    for passed_s, standing in looks:
        now += passed_s
        known = [occasion(number, due=NOW + dues[number], namespace=f"team-{number % 3}") for number in standing]
        plan = plan_notices(history, known, RULE, now)
        due = {
            one.key
            for one in known
            if one.due_unix_s <= now < one.due_unix_s + RULE.news_s and one.key not in history.told
        }
        assert len(plan.notices) + plan.held_back == len(due)
        assert not plan.held_back or plan.history.left < 1
        assert {one.key for one in plan.notices} <= due
        assert {one.key for one in plan.lost} <= history.held_back - due
        assert len(plan.history.turns) <= 3
        told += [one.key for one in plan.notices]
        newest = max(newest, now)
        sent_at += [newest] * len(plan.notices)
        history = plan.history
        assert 0 <= history.left <= RULE.burst
        assert all(now < until for until in history.told.values())
    assert len(told) == len(set(told)) or min(passed for passed, _ in looks) < 0
    for first, start in enumerate(sent_at):
        for last in range(first, len(sent_at)):
            allowed = RULE.burst + (sent_at[last] - start) / RULE.one_more_every_s
            assert last - first + 1 <= allowed + 1e-6


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_all_are_told_in_the_end_if_they_stay_news_long_enough(numbers):
    """The limit delays, it does not drop."""
    rule = NoticeRule(news_s=1e6, burst=3, one_more_every_s=10.0)
    known = [occasion(number, due=NOW - number) for number in numbers]
    history, told = NoticeHistory(), set()
    for look in range(len(known) + 1):
        plan = plan_notices(history, known, rule, NOW + 10.0 * look)
        history, told = plan.history, told | {one.name for one in plan.notices}
    assert told == {one.name for one in known}
