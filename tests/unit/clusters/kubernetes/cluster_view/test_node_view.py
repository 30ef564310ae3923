"""A young node is looked at in every view, since room is kept on it for a while, and read when it changes."""

from autoscaler.clusters.kubernetes.api.api_port import EventType, Listing, WatchEvent
from autoscaler.clusters.kubernetes.api.kinds import DAEMON_SETS, NODES
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cluster_view.node_view import TrackedNodes
from autoscaler.clusters.kubernetes.parsing.node_objects import DAEMONS_EXPECTED_S
from autoscaler.fault_isolation import JobErrors
from tests.unit.clusters.kubernetes.raw_objects import CREATED, CREATED_S, template

AGENT = {"metadata": {"name": "agent", "namespace": "kube-system", "resourceVersion": "3"}, "spec": {}}


def node(version, **spec):
    return {
        "metadata": {"name": "n1", "creationTimestamp": CREATED, "resourceVersion": str(version)},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def test_room_is_kept_while_it_is_young_and_edits_are_seen():
    store = ObjectCache(JobErrors(lambda: 0.0))
    nodes = TrackedNodes(store, offset_s=0.0)
    agent = AGENT | {"spec": {"template": template(cpu="1")}}
    store.apply_listing(DAEMON_SETS, Listing(items=(agent,), resource_version="4"), requested_at_s=0.0)
    store.apply_listing(NODES, Listing(items=(node(4),), resource_version="4"), requested_at_s=0.0)

    def look(after_s):
        return nodes.parse_changes(store.pop_changes(), CREATED_S + after_s).found

    [young] = look(1.0)
    assert young.allocatable.cpu_milli == 3_000
    assert look(2.0) == []
    edited = WatchEvent(type=EventType.MODIFIED, object=node(5, unschedulable=True))
    store.apply_event(NODES, edited, at_s=0.0)
    [cordoned] = look(3.0)
    assert (cordoned.is_cordoned, cordoned.allocatable.cpu_milli) == (True, 3_000)
    [grown_up] = look(DAEMONS_EXPECTED_S)
    assert (grown_up.is_cordoned, grown_up.allocatable.cpu_milli) == (True, 4_000)
    assert look(DAEMONS_EXPECTED_S + 1.0) == []
