"""A pod that EDL fails to read holds its room as long as it stands, and no longer (A11)."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import EventType, Listing, WatchEvent
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.cache.expectations import Expectations
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.clusters.kubernetes.cluster_view import pod_view as views
from autoscaler.clusters.kubernetes.parsing import pod_objects as reading
from autoscaler.domain import Reclaim, Role
from autoscaler.fault_isolation import JobErrors
from tests.unit.clusters.kubernetes.raw_objects import raw_pod

NAME = "team-a/web-1"


class Watched:
    """One pod on n1, as the API server tells of it."""

    def __init__(self):
        errors = JobErrors(lambda: 0.0)
        self.store, self.version = ObjectCache(errors), 4
        self.pods = views.TrackedPods(
            self.store,
            jobs_by_uid={},
            reclaim=Reclaim.PLANNER,
            offset_s=0.0,
            expected=Expectations,
            bucket_owners=lambda _: None,
            errors=errors,
        )

    def look(self, phase):
        """What the view is brought once the pod is in this phase."""
        self.version += 1
        pod = raw_pod(node="n1", status={"phase": phase}, meta={"resourceVersion": str(self.version)})
        if self.version == 5:
            self.store.apply_listing(PODS, Listing(items=(pod,), resource_version="5"), requested_at_s=0.0)
        else:
            self.store.apply_event(PODS, WatchEvent(type=EventType.MODIFIED, object=pod), at_s=0.0)
        return self.pods.parse_changes(self.store.pop_changes(), ())


@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_room_of_a_pod_that_cannot_be_read_is_free_once_it_has_ended(monkeypatch, was_read, end):
    """Its object may stand for ever, and costs its owner nothing."""

    def fail(raw, context):
        raise ZeroDivisionError

    watched = Watched()
    if was_read:
        [pod] = watched.look("Running").found
        assert (pod.name, pod.node) == (NAME, "n1")
    monkeypatch.setattr(views, "parse_pod", fail)
    held = watched.look("Running")
    assert [(pod.role, pod.node) for pod in held.found] == ([] if was_read else [(Role.EXTERNAL, "n1")])
    assert not held.gone
    assert watched.look(end).gone == {NAME}
    assert watched.look(end).gone == set(), "it is told once"
    monkeypatch.setattr(views, "parse_pod", reading.parse_pod)
    assert not watched.look(end).found
