"""`edl` on a cluster: what each command that changes something writes, and refuses."""

import re

import pytest

from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.place_values import PodSelector, SizeRequest
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.objects.labels import KEEP_UNTIL
from tests.unit.cli.kube_place import NAMESPACE, raw_pod, refused, stage, status, table

HAS_GPU = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


def test_keep_writes_until_when_a_pod_is_left_alone(digits):
    """By the cluster's clock; it can be taken back, and names who is not there."""
    made, place = digits
    made.make(kinds.PODS, raw_pod("alice-0", node="n1", containers=[HAS_GPU]))

    def kept():
        return made.server.get(kinds.PODS, NAMESPACE, "alice-0")["metadata"]["annotations"].get(KEEP_UNTIL)

    assert re.fullmatch(r"pod/alice-0 is kept until \d{4}-\d\d-\d\dT.*Z", place.keep_pod("alice-0", 7200))
    assert place.keep_pod("alice-0", 7200).endswith(kept())
    place.keep_pod("alice-0", 0)
    assert kept() is None
    assert "web-9" in refused(Exit.NOT_FOUND, place.keep_pod, "web-9", 60)


def test_keep_refuses_pods_of_which_it_keeps_nothing(digits):
    """An EDL trainer leaves by the planner's decision; a pod without GPUs is never asked for them."""
    made, place = digits
    said = refused(Exit.REFUSED, place.keep_pod, "digits-trainer-0", 60)
    assert "pod/digits-trainer-0 belongs to tj/digits" in said
    assert "edl scale tj/digits --trainers N" in said
    assert "web-1 requests no GPUs" in refused(Exit.REFUSED, place.keep_pod, "web-1", 60)
    for name in ("digits-trainer-0", "web-1"):
        assert KEEP_UNTIL not in made.get(kinds.PODS, name)["metadata"].get("annotations", {})
        assert place.keep_pod(name, 0).endswith("is kept no longer")


@pytest.mark.parametrize("name", ["", f"{NAMESPACE}/"])
def test_a_name_that_ends_before_the_name_is_of_nothing(digits, name):
    """On the wire it would be the path of all pods, and what is read there is no pod."""
    _, place = digits
    for call in (
        lambda: place.delete("pod", name, is_dry=False),
        lambda: place.keep_pod(name, 60),
        lambda: place.drain("node", name, PodSelector(role=None, ordinal=None), is_dry=False),
        lambda: place.describe("tj", name),
    ):
        assert "ends before the name" in refused(Exit.USAGE, call)


def test_scale_pins_a_job_through_its_scale(digits):
    """What may not be is refused before it is written; a dry run writes nothing."""
    made, place = digits
    four = [SizeRequest(field="trainers", count=4)]
    told = "tj/digits scaled to 4 trainers (2 now); replaces the resize to 3: 2 of 3 present"
    assert place.scale("tj", "digits", four, is_dry=True) == f"{told} (dry run)"
    assert "replicas" not in made.get(kinds.TRAINING_JOBS, "digits")["spec"]["trainer"]
    assert place.scale("tj", "digits", four, is_dry=False) == told
    assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["trainer"]["replicas"] == 4
    nine, three = [SizeRequest(field="trainers", count=9)], [SizeRequest(field="replicas", count=3)]
    assert "may have 2 to 8 trainers" in refused(Exit.REFUSED, place.scale, "tj", "digits", nine, is_dry=False)
    assert "--trainers N" in refused(Exit.USAGE, place.scale, "tj", "digits", three, is_dry=False)


def test_scale_pins_servers_in_the_spec():
    """Within their bounds; a job without servers has no tables either."""
    with stage() as (made, place):
        made.make_job(server={"maxReplicas": 3, "trainersPerServer": 2})
        made.make_job("bare")
        two, four = [SizeRequest(field="servers", count=2)], [SizeRequest(field="servers", count=4)]
        assert place.scale("tj", "digits", two, is_dry=False) == "tj/digits scaled to 2 servers (0 now)"
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2
        ours = [SizeRequest(field="servers", count=0)]
        assert (
            place.scale("tj", "digits", ours, is_dry=True) == "tj/digits: EDL decides the number of servers (dry run)"
        )
        assert "spec.parameterServer.replicas: tj/digits may have 1 to 3 servers" in refused(
            Exit.REFUSED, place.scale, "tj", "digits", four, is_dry=False
        )
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2
        assert "tj/bare has no parameter servers" in refused(Exit.REFUSED, place.scale, "tj", "bare", two, is_dry=False)


def test_both_sizes_are_set_by_one_write():
    """Or none of them, when one cannot be."""
    with stage() as (made, place):
        made.make_job(server={"maxReplicas": 3, "trainersPerServer": 2})
        before = made.get(kinds.TRAINING_JOBS, "digits")
        too_many = [SizeRequest(field="trainers", count=4), SizeRequest(field="servers", count=9)]
        assert "may have 1 to 3 servers" in refused(Exit.REFUSED, place.scale, "tj", "digits", too_many, is_dry=False)
        assert made.get(kinds.TRAINING_JOBS, "digits") == before
        both = [SizeRequest(field="trainers", count=4), SizeRequest(field="servers", count=2)]
        assert [line.split(" (")[0] for line in place.scale("tj", "digits", both, is_dry=False).splitlines()] == [
            "tj/digits scaled to 4 trainers",
            "tj/digits scaled to 2 servers",
        ]
        spec = made.get(kinds.TRAINING_JOBS, "digits")["spec"]
        assert (spec["trainer"]["replicas"], spec["parameterServer"]["replicas"]) == (4, 2)


def test_a_second_resize_is_told_what_it_replaces():
    """What the operator saw last, and what was asked for since."""
    with stage() as (made, place):
        made.make_job(told=status(servers={"ready": 3, "target": 3, "draining": 1}), server={"maxReplicas": 4})
        two, four = [SizeRequest(field="servers", count=2)], [SizeRequest(field="servers", count=4)]
        assert place.scale("tj", "digits", four, is_dry=False) == (
            "tj/digits scaled to 4 servers (2 now); replaces the resize to 3: 2 of 3 present, "
            "1 terminating; pods and buckets that are already moving finish first"
        )
        assert "replaces the resize to 4: 2 of 4 present" in place.scale("tj", "digits", two, is_dry=False)
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2


class Overtaken:
    """A server on which somebody else asks for 4 servers just before the first write."""

    def __init__(self, api):
        self._api = api
        self._rivals = [{"spec": {"parameterServer": {"replicas": 4}}}]

    def __getattr__(self, name):
        return getattr(self._api, name)

    async def patch(self, kind, name, change, **options):
        while self._rivals:
            await self._api.patch(kind, name, self._rivals.pop(), namespace=options["namespace"])
        return await self._api.patch(kind, name, change, **options)


def test_a_resize_that_comes_between_look_and_write_is_told_too():
    """The write goes to what was looked at: else it is looked at again."""
    with stage(wrap=Overtaken) as (made, place):
        made.make_job(told=status(servers={"ready": 3, "target": 3}), server={"maxReplicas": 4})
        told = place.scale("tj", "digits", [SizeRequest(field="servers", count=2)], is_dry=False)
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2
    assert "replaces the resize to 4: 3 of 4 present" in told


def test_drain_tells_one_pod_to_leave_within_its_own_grace(digits):
    """Nothing else is touched."""
    made, place = digits
    assert "dry run" in place.drain("tj", "digits", PodSelector(role="trainer", ordinal=1), is_dry=True)
    assert (
        place.drain("tj", "digits", PodSelector(role="trainer", ordinal=1), is_dry=False)
        == "pod/digits-trainer-1 is draining"
    )
    leaving = made.get(kinds.PODS, "digits-trainer-1")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == leaving["spec"]["terminationGracePeriodSeconds"]
    assert "deletionTimestamp" not in made.get(kinds.PODS, "digits-trainer-0")["metadata"]
    assert "scaled, not drained" in refused(Exit.USAGE, place.drain, "deployment", "web", PodSelector(), is_dry=False)


def test_a_node_is_drained_of_edls_pods_and_opened_again(digits):
    """By the label that the planner reads; kubectl's cordon is not touched."""
    made, place = digits
    place.drain("node", "n1", PodSelector(), is_dry=False)
    assert made.get(kinds.NODES, "n1", None)["metadata"]["labels"] == {"edl.dev/drain": "true"}
    assert table(place, "node")[1].split()[1] == "Ready,Draining"
    assert place.uncordon("node", "n1") == "node/n1 is open"
    assert not made.get(kinds.NODES, "n1", None)["metadata"].get("labels")


def test_suspend_resume_and_delete(digits):
    """Of jobs that are not over."""
    made, place = digits
    assert place.set_suspended("tj", "digits", is_suspended=True) == (
        "tj/digits is being suspended; "
        "edl wait --for=condition=Suspended tj/digits returns once its trainers have ended"
    )
    assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["runPolicy"] == {"suspend": True}
    four = [SizeRequest(field="trainers", count=4)]
    assert "the job is suspended: the size applies" in place.scale("tj", "digits", four, is_dry=False)
    assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["trainer"]["replicas"] == 4
    assert place.set_suspended("tj", "digits", is_suspended=False) == "tj/digits resumed"
    made.make_job("old", status({"type": "Completed", "status": "True"}))
    assert "edl delete tj/old and start it again" in refused(
        Exit.REFUSED, place.set_suspended, "tj", "old", is_suspended=True
    )
    assert "would be deleted" in place.delete("tj", "old", is_dry=True)
    assert place.delete("tj", "old", is_dry=False) == "tj/old is being deleted"
    refused(Exit.NOT_FOUND, place.get, "tj", "old")
    assert "edl drain node/NAME" in refused(Exit.USAGE, place.delete, "node", "n1", is_dry=False)
