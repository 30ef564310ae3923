"""What to count on until the watch shows it: a pod told to go is leaving, one perhaps made occupies its room."""

import pytest

from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, PODS
from autoscaler.clusters.kubernetes.cache.expectations import EXPECTATION_LIMIT_S, Expectations
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key

ERRORS = JobErrors(lambda: 0.0)


def pod(uid="u1", **metadata):
    return {"metadata": {"name": "one", "namespace": "n", "uid": uid, **metadata}}


def shows(obj):
    return lambda kind, key: obj if (kind, key) == (PODS, ("n", "one")) else None


def test_pod_told_to_go_is_leaving_until_the_watch_says_so():
    told = Expectations().with_deletion(PODS, pod(), now_s=0.0)
    assert told.is_leaving(PODS, pod())
    still = told.settled(shows(pod()), now_s=1.0, errors=ERRORS)
    assert still.is_leaving(PODS, pod())
    assert not still.settled(shows(pod(deletionTimestamp="t")), now_s=1.0, errors=ERRORS).deletions
    assert not still.settled(shows(None), now_s=1.0, errors=ERRORS).deletions


def test_its_successor_of_the_same_name_is_not_leaving():
    told = Expectations().with_deletion(PODS, pod("u1"), now_s=0.0)
    assert not told.is_leaving(PODS, pod("u2"))
    assert not told.settled(shows(pod("u2")), now_s=1.0, errors=ERRORS).deletions


def test_kinds_of_one_name_are_apart():
    told = Expectations().with_deletion(CONFIG_MAPS, pod(), now_s=0.0)
    assert not told.is_leaving(PODS, pod())


def test_pod_perhaps_made_counts_until_it_is_seen():
    sent = Expectations().with_creation(PODS, pod(), now_s=0.0)
    assert [one.body for one in sent.settled(shows(None), now_s=1.0, errors=ERRORS).creations.values()] == [pod()]
    assert not sent.settled(shows(pod("any")), now_s=1.0, errors=ERRORS).creations


@pytest.mark.parametrize("expect", [Expectations().with_creation, Expectations().with_deletion])
def test_what_does_not_show_in_time_did_not_happen(expect):
    """The loop starts from what it sees and decides again."""
    waiting = expect(PODS, pod(), now_s=5.0)
    shown = shows(pod()) if waiting.deletions else shows(None)
    assert waiting.settled(shown, now_s=5.0 + EXPECTATION_LIMIT_S - 0.001, errors=ERRORS) is waiting
    assert waiting.settled(shown, now_s=5.0 + EXPECTATION_LIMIT_S, errors=ERRORS) == Expectations()


def test_what_has_shown_or_waited_too_long_takes_nothing_else_along():
    """Each of three is asked for itself: one is too old, one shows, and the last one is counted on."""
    late = {"metadata": {"name": "late", "namespace": "n", "uid": "u2"}}
    coming = {"metadata": {"name": "coming", "namespace": "n", "uid": "u3"}}
    sent = Expectations().with_creation(PODS, late, now_s=0.0).with_creation(PODS, pod(), now_s=5.0)
    sent = sent.with_creation(PODS, coming, now_s=5.0)
    left = sent.settled(shows(pod()), now_s=EXPECTATION_LIMIT_S, errors=ERRORS)
    assert [one.body for one in left.creations.values()] == [coming]


def test_fault_with_one_object_keeps_the_others_and_lasts_no_longer_than_patience():
    """What cannot be told of one is counted on for its time; what has shown beside it is settled (A11)."""
    poisoned = {"metadata": {"name": "poisoned", "namespace": "n", "uid": "u9"}}
    waiting = Expectations().with_creation(PODS, poisoned, now_s=0.0).with_creation(PODS, pod(), now_s=0.0)

    def find(kind, key):
        if key == ("n", "poisoned"):
            raise ZeroDivisionError
        return shows(pod())(kind, key)

    errors = JobErrors(lambda: 0.0)
    assert list(waiting.settled(find, now_s=1.0, errors=errors).creations) == [(PODS, ("n", "poisoned"))]
    assert errors.fails(object_key("pods", "n", "poisoned"), GuardedTask.EXPECT)
    assert not waiting.settled(find, now_s=EXPECTATION_LIMIT_S, errors=errors).creations
