"""The mapping that the cores' state is made of."""

from master.job.domain.frozen_map import FrozenMap


def test_equal_entries_make_equal_maps_in_whatever_order_they_were_put():
    """States are compared and hashed: two that hold the same are one."""
    one, other = FrozenMap({"a": 1}).put("b", 2), FrozenMap({"b": 2}).put_all({"a": 1})
    assert one == other
    assert len({one, other}) == 1
    assert one != other.put("a", 3)
    assert one != other.without("a")
    assert one != {"a": 1, "b": 2}, "a dict can change"


def test_a_map_stays_as_it_is_when_others_are_made_of_it():
    """Entries keep their order, a replaced one its place; what it was made of may change."""
    source = {"a": 1, "b": 2}
    first = FrozenMap(source)
    source["c"] = 3
    assert list(first.put("a", 5).items()) == [("a", 5), ("b", 2)]
    assert list(first.put_all({"d": 4}).values()) == [1, 2, 4]
    assert first.without("d") is first
    assert list(first.without("a")) == ["b"]
    assert dict(first) == {"a": 1, "b": 2}
    assert (first.get("a"), first.get("d"), first.get("d", 7)) == (1, None, 7)
    assert ("a" in first, "d" in first, len(first), len(FrozenMap())) == (True, False, 2, 0)
