"""Views that are kept: the same while their object is the same, and forgotten with it."""

from autoscaler.views.view_memo import SLACK, ViewMemo
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
