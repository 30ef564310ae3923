"""A namespace has ended when nothing has stood in it for a while, and not before."""

from autoscaler.views.namespace_presence import NAMESPACE_KEPT_S, NamespacePresence


def test_a_namespace_ends_after_it_was_empty_for_long_enough():
    presence = NamespacePresence()
    assert presence.ended({"a", "b"}, {"b"}, 0.0) == frozenset()
    assert presence.ended({"a", "b"}, {"b"}, NAMESPACE_KEPT_S - 1) == frozenset()
    assert presence.ended({"a", "b"}, {"b"}, NAMESPACE_KEPT_S) == {"a"}


def test_one_object_begins_the_wait_anew_and_so_does_a_clock_that_went_back():
    presence = NamespacePresence()
    presence.ended({"a"}, set(), 0.0)
    presence.ended({"a"}, {"a"}, 1.0)
    assert presence.ended({"a"}, set(), NAMESPACE_KEPT_S) == frozenset()
    assert presence.ended({"a"}, set(), 5.0) == frozenset()
    assert presence.ended({"a"}, set(), NAMESPACE_KEPT_S + 4.0) == frozenset()
    assert presence.ended({"a"}, set(), NAMESPACE_KEPT_S + 5.0) == {"a"}


def test_what_belongs_to_no_namespace_never_ends():
    presence = NamespacePresence()
    presence.ended({""}, set(), 0.0)
    assert presence.ended({""}, set(), 2 * NAMESPACE_KEPT_S) == frozenset()
