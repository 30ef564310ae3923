"""Views that are kept: the same while their object is the same, and forgotten with it."""

from autoscaler.views.view_memo import MOST_PARTS, SLACK, ViewMemo
from tests.harness.page_cluster import pod


def test_an_object_that_stands_is_viewed_once():
    made = []
    memo = ViewMemo()
    objects = [pod("a"), pod("b")]
    view = lambda raw: made.append(raw) or raw["metadata"]["name"]  # noqa: E731
    assert memo.each(view, objects) == memo.each(view, objects) == ["a", "b"]
    assert len(made) == 2


def test_an_object_that_changed_is_viewed_again():
    """Another object of the same name is another one, whatever its contents."""
    memo = ViewMemo()
    view = lambda raw: [raw["metadata"]["name"]]  # noqa: E731
    (first,) = memo.each(view, [pod("a")])
    (second,) = memo.each(view, [pod("a")])
    assert first is not second


def test_what_is_gone_is_forgotten():
    """A day of pods that come and go holds no more than twice those that stand."""
    memo, viewed = ViewMemo(), []
    view = lambda raw: viewed.append(1) or raw["metadata"]["name"]  # noqa: E731
    for number in range(5_000):
        memo.each(view, [pod(f"p{number}")])
    (kept,) = memo._kept.values()
    assert len(kept) <= 2 + SLACK + 1


def test_a_part_of_the_objects_forgets_no_view_of_the_others():
    """A viewer of one namespace beside one of all: neither has the other's views made again."""
    objects, made = [{"n": n} for n in range(3 * SLACK)], []

    def make(raw):
        made.append(raw["n"])
        return raw["n"]

    memo = ViewMemo()
    memo.each(make, objects)
    assert memo.of_part().each(make, objects[:2]) == [0, 1]
    memo.each(make, objects)
    assert len(made) == len(objects)


def test_a_listing_that_stands_is_viewed_once_for_each_use():
    memo, made = ViewMemo(), []
    make = lambda objects: made.append(1) or len(objects)  # noqa: E731
    pods, jobs = (pod("a"), pod("b")), (pod("c"),)
    assert [memo.once(make, pods), memo.once(make, jobs, name="jobs")] == [2, 1]
    assert [memo.once(make, pods), memo.once(make, jobs, name="jobs")] == [2, 1]
    assert len(made) == 2
    assert memo.once(make, (*pods,)[:1]) == 1
    assert len(made) == 3


def test_a_row_is_made_again_when_one_of_its_objects_is_another():
    memo, made = ViewMemo(), []
    make = lambda *row: made.append(row) or len(row)  # noqa: E731
    first, second, third = [1], [2], [3]
    assert memo.each_row(make, [(first, second), (third,)]) == [2, 1]
    assert memo.each_row(make, [(first, [2]), (third,)]) == [2, 1]
    assert made == [(first, second), (third,), (first, [2])]
    assert memo.each_row(make, [(first,)]) == [1]
    assert len(memo._rows[make]) == 1


def test_an_equal_value_is_the_last_one():
    memo = ViewMemo()
    value, objects = {"a": 1}, tuple(map(pod, "ab"))
    assert memo.same("colours", value) is value is memo.same("colours", {"a": 1})
    assert memo.same("colours", {"a": 2}) == {"a": 2}
    assert memo.same_objects("pods", objects) is objects is memo.same_objects("pods", (*objects,)[:])
    assert memo.same_objects("pods", objects[:1]) == objects[:1]


def test_parts_are_kept_for_those_who_ask():
    """As many as are bounded; the one that is asked for most of the time stays."""
    memo = ViewMemo()
    first = memo.of_part("first")
    for number in range(3 * MOST_PARTS):
        memo.of_part(number)
        assert memo.of_part("first") is first
    assert len(memo._parts) == MOST_PARTS
