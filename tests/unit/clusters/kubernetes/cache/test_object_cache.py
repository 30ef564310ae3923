"""The store equals the API server's truth after any listings, events, repetitions and answers to own writes."""

import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autoscaler.clusters.kubernetes.api.api_port import EventType, Listing, WatchEvent
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, NODES, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, key_of
from autoscaler.errors import InvariantViolationError
from autoscaler.fault_isolation import GuardedTask, JobErrors, object_key

NAMES = st.sampled_from("abcd")


def obj(name, version, *, namespace="n", **fields):
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": str(version)}, **fields}


def listing(version, *items):
    return Listing(items=items, resource_version=str(version))


def event(type_, what):
    return WatchEvent(type=type_, object=what)


class Truth(RuleBasedStateMachine):
    """An API server's history on one side; on the other a store that is told parts of it, late, twice and old."""

    def __init__(self):
        super().__init__()
        self.store = ObjectCache(JobErrors(lambda: 0.0))
        self.version = 10
        self.states = {10: {}}  # version -> all objects as they stood
        self.events = []
        self.newest = {}  # what the store has shown of each key
        self.learned = {}  # key -> the version that our own write got

    @initialize()
    def first_listing(self):
        assert self.store.apply_listing(PODS, listing(10), requested_at_s=0.0)

    @rule(name=NAMES, is_deleted=st.booleans())
    def something_changes(self, name, is_deleted):
        before = self.states[self.version]
        self.version += 1
        after, changed = dict(before), obj(name, self.version)
        if is_deleted and name in before:
            del after[name]
            self.events.append(event(EventType.DELETED, changed))
        else:
            after[name] = changed
            self.events.append(event(EventType.MODIFIED if name in before else EventType.ADDED, changed))
        self.states[self.version] = after

    @rule(count=st.integers(1, 3))
    def stream_goes_on(self, count):
        """From where the store stands, in order: what a watch does."""
        missing = [one for one in self.events if int(one.resource_version) > self.store.version(PODS)]
        for one in missing[:count]:
            self.store.apply_event(PODS, one, at_s=0.0)

    @rule(number=st.integers(0, 30))
    def old_event_comes_again(self, number):
        known = [one for one in self.events if int(one.resource_version) <= self.store.version(PODS)]
        if known:
            self.store.apply_event(PODS, known[number % len(known)], at_s=0.0)

    @rule()
    def bookmark_comes(self):
        """Of a version that the stream has reached."""
        if all(int(one.resource_version) <= self.store.version(PODS) for one in self.events):
            self.store.apply_event(PODS, event(EventType.BOOKMARK, obj("", self.version)), at_s=0.0)

    @rule(back=st.integers(0, 30))
    def relisted_from_a_server_that_lags(self, back):
        version = max(10, self.version - back)
        is_older = version < self.store.version(PODS)
        taken = self.store.apply_listing(PODS, listing(version, *self.states[version].values()), requested_at_s=0.0)
        assert taken is not is_older

    @rule(name=NAMES)
    def own_write_is_answered(self, name):
        """The answer is in the store at once, and outlives listings and events from before it."""
        self.something_changes(name, is_deleted=False)
        self.store.put_written(PODS, self.states[self.version][name])
        assert self.store.get(PODS, ("n", name)) == self.states[self.version][name]
        self.learned["n", name] = self.version

    @rule(number=st.integers(0, 30))
    def answer_comes_late(self, number):
        """Of a write that was answered after the watch had shown more."""
        made = [one.object for one in self.events if one.type is not EventType.DELETED]
        known = [one for one in made if int(one["metadata"]["resourceVersion"]) <= self.store.version(PODS)]
        if known:
            before = dict(self.store.objects(PODS))
            self.store.put_written(PODS, known[number % len(known)])
            assert dict(self.store.objects(PODS)) == before

    @invariant()
    def nothing_goes_back(self):
        """No object is ever shown older than it was shown before, not even after it was gone."""
        for key, shown in self.store.objects(PODS).items():
            version = int(shown["metadata"]["resourceVersion"])
            assert version >= self.newest.get(key, 0)
            self.newest[key] = version

    @invariant()
    def own_writes_stay(self):
        """Until the stream has passed them, even when what they replaced was deleted before."""
        for key, version in self.learned.items():
            if self.store.version(PODS) < version:
                assert int(self.store.get(PODS, key)["metadata"]["resourceVersion"]) >= version

    def teardown(self):
        """What has changed is told, and the whole stream brings the store to the truth."""
        self.store.pop_changes()
        before = dict(self.store.objects(PODS))
        self.stream_goes_on(len(self.events))
        after = dict(self.store.objects(PODS))
        assert after == {("n", name): one for name, one in self.states[self.version].items()}
        told = self.store.pop_changes().get(PODS, frozenset())
        assert told >= {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


TestTruth = Truth.TestCase


def test_relisting_brings_back_what_was_swallowed():
    """A change that the stream lost for good shows in the next listing: come, changed and gone."""
    store = ObjectCache(JobErrors(lambda: 0.0))
    store.apply_listing(PODS, listing(10, obj("changed", 3), obj("gone", 4)), requested_at_s=0.0)
    store.apply_event(PODS, event(EventType.BOOKMARK, obj("", 20)), at_s=1.0)
    store.pop_changes()
    store.apply_listing(PODS, listing(20, obj("changed", 12), obj("come", 13)), requested_at_s=2.0)
    assert {name for _, name in store.objects(PODS)} == {"changed", "come"}
    assert store.pop_changes() == {PODS: frozenset({("n", "changed"), ("n", "come"), ("n", "gone")})}


def test_relisting_of_the_same_changes_nothing():
    store = ObjectCache(JobErrors(lambda: 0.0))
    same = obj("one", 3)
    store.apply_listing(PODS, listing(10, same), requested_at_s=0.0)
    store.pop_changes()
    store.apply_listing(PODS, listing(11, json.loads(json.dumps(same))), requested_at_s=1.0)
    assert store.pop_changes() == {}
    assert store.get(PODS, ("n", "one")) is same


def test_kinds_are_apart():
    store = ObjectCache(JobErrors(lambda: 0.0))
    store.apply_listing(PODS, listing(10, obj("one", 3)), requested_at_s=5.0)
    assert store.is_synced([PODS])
    assert not store.is_synced([PODS, CONFIG_MAPS])
    assert store.oldest_confirmed_at_s([PODS, CONFIG_MAPS]) is None
    store.apply_listing(CONFIG_MAPS, listing(10), requested_at_s=3.0)
    assert store.oldest_confirmed_at_s([PODS, CONFIG_MAPS]) == 3.0
    store.record_progress(CONFIG_MAPS, at_s=9.0)
    assert store.oldest_confirmed_at_s([PODS, CONFIG_MAPS]) == 5.0
    assert store.objects(CONFIG_MAPS) == {}


def test_repetition_is_a_sign_of_life():
    """The server speaks, if only of what is known."""
    store = ObjectCache(JobErrors(lambda: 0.0))
    store.apply_listing(PODS, listing(10), requested_at_s=0.0)
    store.apply_event(PODS, event(EventType.ADDED, obj("one", 9)), at_s=7.0)
    assert store.objects(PODS) == {}
    assert store.confirmed_at_s(PODS) == 7.0


def test_event_before_the_first_listing_is_our_bug():
    with pytest.raises(InvariantViolationError):
        ObjectCache(JobErrors(lambda: 0.0)).apply_event(PODS, event(EventType.ADDED, obj("one", 9)), at_s=7.0)


def test_answer_before_the_first_listing_is_not_kept():
    """A store that has not been listed must not look as if it had."""
    store = ObjectCache(JobErrors(lambda: 0.0))
    store.put_written(PODS, obj("one", 9))
    assert store.objects(PODS) == {}


def test_objects_of_the_whole_cluster_stand_without_a_namespace():
    node = {"metadata": {"name": "node", "resourceVersion": "3"}}
    assert key_of(node) == ("", "node")
    store = ObjectCache(JobErrors(lambda: 0.0))
    store.apply_listing(NODES, listing(10, node), requested_at_s=0.0)
    assert store.get(NODES, ("", "node")) is node


def test_slim_leaves_out_what_nobody_reads():
    store = ObjectCache(JobErrors(lambda: 0.0), {PODS: lambda pod: {"metadata": pod["metadata"]}})
    store.apply_listing(PODS, listing(10, obj("one", 3, status={"big": "x"})), requested_at_s=0.0)
    store.apply_event(PODS, event(EventType.ADDED, obj("two", 11, status={"big": "x"})), at_s=0.0)
    assert all("status" not in pod for pod in store.objects(PODS).values())


def test_namespaces_are_sources_of_their_own():
    """A listing of one says nothing of another, and the kind is as old as the oldest."""
    store = ObjectCache(JobErrors(lambda: 0.0), namespaces={PODS: ("n", "m")})
    store.apply_listing(PODS, listing(10, obj("one", 3)), requested_at_s=1.0, source="n")
    assert not store.is_synced([PODS])
    assert store.oldest_confirmed_at_s([PODS]) is None
    store.apply_listing(PODS, listing(20, obj("one", 4, namespace="m")), requested_at_s=2.0, source="m")
    assert store.is_synced([PODS])
    assert set(store.objects(PODS)) == {("n", "one"), ("m", "one")}
    assert (store.version(PODS, "n"), store.version(PODS, "m")) == (10, 20)
    store.apply_event(PODS, event(EventType.DELETED, obj("one", 12)), at_s=3.0, source="n")
    store.apply_listing(PODS, listing(21), requested_at_s=4.0, source="m")
    assert store.objects(PODS) == {}
    assert store.oldest_confirmed_at_s([PODS]) == 3.0


def test_answer_is_measured_by_its_own_namespace():
    """How far another one has come says nothing of it; what is followed nowhere is not kept."""
    store = ObjectCache(JobErrors(lambda: 0.0), namespaces={PODS: ("n", "m")})
    store.apply_listing(PODS, listing(10), requested_at_s=0.0, source="n")
    store.apply_listing(PODS, listing(20), requested_at_s=0.0, source="m")
    for namespace in ("n", "m", "other"):
        store.put_written(PODS, obj("one", 15, namespace=namespace))
    assert set(store.objects(PODS)) == {("n", "one")}


@pytest.mark.parametrize("broken", [{"name": "two", "resourceVersion": "x"}, {"resourceVersion": "6"}, {}])
def test_object_that_cannot_be_kept_stops_no_stream(broken):
    """The others come, by listing and by watch, and the stream goes on (A11)."""
    errors = JobErrors(lambda: 0.0)
    store = ObjectCache(errors)
    items = (obj("one", 5), {"metadata": broken}, obj("three", 7))
    assert store.apply_listing(PODS, Listing(items=items, resource_version="8"), requested_at_s=1.0)
    assert errors.fails(object_key("pods", "", broken.get("name", "")), GuardedTask.KEEP)
    assert {name for _, name in store.objects(PODS)} == {"one", "three"}
    bad = WatchEvent(type=EventType.MODIFIED, object={"metadata": broken | {"resourceVersion": "9"}})
    store.apply_event(PODS, bad, at_s=2.0)
    store.apply_event(PODS, event(EventType.ADDED, obj("four", 10)), at_s=3.0)
    assert {name for _, name in store.objects(PODS)} >= {"one", "three", "four"}
    assert store.version(PODS) == 10
