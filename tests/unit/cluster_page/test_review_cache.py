"""Kept answers are bounded in number and age; the budget bounds the rate of questions."""

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.cluster_page.review_cache import ReviewBudget, ReviewCache


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.floats(0, 5), st.floats(0.1, 20)), max_size=60))
def test_answer_is_the_newest_and_never_an_old_one(steps):
    """Against a plain dict: what is found is the newest that was put, and still holds; there are never too many."""
    cache, known, now_s = ReviewCache(most=4), {}, 0.0
    for key, is_put, passed_s, kept_s in steps:
        now_s += passed_s
        if is_put:
            cache.put(key, now_s, until_s=now_s + kept_s)
            known[key] = (now_s, now_s + kept_s)
        found = cache.get(key, now_s)
        assert len(cache) <= 4
        if found is not None:
            assert (found.value, found.until_s) == known[key]
            assert now_s < found.until_s
        assert not is_put or found is not None


def test_answers_not_asked_for_longest_go_first():
    cache = ReviewCache(most=2)
    for key in "ab":
        cache.put(key, None, until_s=10.0)
    assert cache.get("a", 1.0) is not None
    cache.put("c", None, until_s=10.0)
    assert cache.get("b", 1.0) is None
    assert cache.get("a", 1.0).value is None


@given(st.lists(st.floats(0, 2), min_size=1, max_size=120))
def test_budget_is_kept_over_any_time(pauses):
    """From any instant on, no more questions are sent than the burst and the rate allow; none waits too long."""
    budget, now_s, sent = ReviewBudget(per_s=5.0, burst=10, longest_wait_s=2.0), 0.0, []
    for pause_s in pauses:
        now_s += pause_s / 10
        wait_s = budget.take(now_s)
        if wait_s is not None:
            assert 0.0 <= wait_s <= 2.0
            sent.append(now_s + wait_s)
    sent.sort()
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= 10 + 5.0 * (sent[last] - sent[first]) + 1.001


def test_unused_budget_is_no_more_than_the_burst():
    budget = ReviewBudget(per_s=1.0, burst=3, longest_wait_s=0.0)
    assert [budget.take(1_000.0) for _ in range(5)] == [0.0, 0.0, 0.0, None, None]
