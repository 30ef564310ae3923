"""Changing: patches, versions, subresources: a part of the contract that every adapter of `Api` keeps."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Preconditions, Subresource
from autoscaler.clusters.kubernetes.api.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, DEPLOYMENTS, LEASES, PODS
from tests.unit.clusters.kubernetes.api.contract.stage import GATE, number

MOUNT = {"name": "no-such-volume", "mountPath": "/data"}


@pytest.mark.asyncio
class Changing:
    """See `KubeApiContract`."""

    async def test_a_creation_that_is_only_judged_makes_nothing(self, stage):
        await stage.api.check_create(DEPLOYMENTS, stage.deployment("web"))
        await stage.api.check_create(PODS, stage.pod("one"))
        for kind, name in ((DEPLOYMENTS, "web"), (PODS, "one")):
            with pytest.raises(NotFoundError):
                await stage.get(kind, name)

    async def test_a_creation_that_would_be_refused_is_refused_when_it_is_judged(self, stage):
        """By its name, which is taken, and by its schema: with the words that the creation itself would meet."""
        await stage.api.create(DEPLOYMENTS, stage.deployment("web"))
        with pytest.raises(AlreadyExistsError):
            await stage.api.check_create(DEPLOYMENTS, stage.deployment("web"))
        for change in ({"name": "A_b"}, {"ports": [{"containerPort": 99999}]}, {"volumeMounts": [MOUNT]}):
            wrong = stage.deployment("wrong")
            wrong["spec"]["template"]["spec"]["containers"][0] |= change
            with pytest.raises(InvalidError, match=r'Deployment\S* "wrong" is invalid: spec.template.spec'):
                await stage.api.check_create(DEPLOYMENTS, wrong)

    async def test_a_field_that_the_server_does_not_know_is_refused_when_it_is_judged(self, stage):
        """By its path: `create` would leave it out without a word."""
        wrong, template = stage.pod("wrong"), stage.deployment("wrong")
        wrong["spec"]["quantumEntanglement"] = {"a": [1]}
        template["spec"]["template"]["spec"]["containers"][0]["enviroment"] = []
        with pytest.raises(BadRequestError, match=r'strict decoding error: unknown field "spec\.quantumEntanglement"'):
            await stage.api.check_create(PODS, wrong)
        named = r'unknown field "spec\.template\.spec\.containers\[0\]\.enviroment"'
        with pytest.raises(BadRequestError, match=named):
            await stage.api.check_create(DEPLOYMENTS, template)

    async def test_patch_merges_removes_and_replaces_lists(self, stage):
        await stage.api.create(
            CONFIG_MAPS, stage.config("one", data={"keep": "1", "go": "1"}, finalizers=["edl.dev/a", "edl.dev/b"])
        )
        change = {"data": {"go": None, "new": "1"}, "metadata": {"finalizers": ["edl.dev/b"]}}
        changed = await stage.api.patch(CONFIG_MAPS, "one", change, namespace=stage.namespace)
        assert changed["data"] == {"keep": "1", "new": "1"}
        assert changed["metadata"]["finalizers"] == ["edl.dev/b"]
        assert changed == await stage.get(CONFIG_MAPS, "one")
        await stage.api.patch(CONFIG_MAPS, "one", {"metadata": {"finalizers": None}}, namespace=stage.namespace)

    async def test_change_that_changes_nothing_keeps_the_version(self, stage):
        made = await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        same = await stage.api.patch(CONFIG_MAPS, "one", {"data": {"a": "1"}}, namespace=stage.namespace)
        assert number(same) == number(made)

    async def test_patch_of_another_object_of_that_name_is_a_conflict(self, stage):
        """Neither by UID nor by version: nothing has changed."""
        made = await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        other_uid = "00000000-0000-4000-8000-ffffffffffff"
        change = {"data": {"a": "2"}}
        with pytest.raises(ConflictError):
            await stage.api.patch(
                CONFIG_MAPS, "one", change, namespace=stage.namespace, only=Preconditions(uid=other_uid)
            )
        await stage.other.patch(CONFIG_MAPS, "one", {"data": {"b": "1"}}, namespace=stage.namespace)
        with pytest.raises(ConflictError):
            await stage.api.patch(
                CONFIG_MAPS,
                "one",
                change,
                namespace=stage.namespace,
                only=Preconditions(resource_version=made["metadata"]["resourceVersion"]),
            )
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "1", "b": "1"}

    async def test_patch_of_the_very_object_happens(self, stage):
        made = (await stage.api.create(CONFIG_MAPS, stage.config("one")))["metadata"]
        only = Preconditions(uid=made["uid"], resource_version=made["resourceVersion"])
        await stage.api.patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, namespace=stage.namespace, only=only)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "2"}

    async def test_two_writers_of_a_lease_exclude_one_another_by_its_version(self, stage):
        """What leader election rests on."""
        body = {"metadata": {"name": "lease", "namespace": stage.namespace}, "spec": {"holderIdentity": "nobody"}}
        seen = (await stage.api.create(LEASES, body))["metadata"]
        only = Preconditions(uid=seen["uid"], resource_version=seen["resourceVersion"])
        take = {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
        await stage.api.patch(LEASES, "lease", take, namespace=stage.namespace, only=only)
        with pytest.raises(ConflictError):
            await stage.other.patch(
                LEASES, "lease", {"spec": {"holderIdentity": "b"}}, namespace=stage.namespace, only=only
            )
        assert (await stage.get(LEASES, "lease"))["spec"]["holderIdentity"] == "a"

    async def test_generation_counts_what_is_wanted_only(self, stage):
        made = await stage.api.create(DEPLOYMENTS, stage.deployment("web"))
        labelled = await stage.api.patch(
            DEPLOYMENTS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=stage.namespace
        )
        wanted = await stage.api.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}}, namespace=stage.namespace)
        assert [one["metadata"]["generation"] for one in (made, labelled, wanted)] == [1, 1, 2]

    async def test_status_has_a_door_of_its_own(self, stage):
        pod = stage.pod("one", gates=[GATE]) | {"status": {"message": "forged"}}
        assert (await stage.api.create(PODS, pod))["status"].get("message") is None
        change = {"status": {"message": "by status"}, "metadata": {"annotations": None}}
        forged = await stage.api.patch(PODS, "one", change, namespace=stage.namespace)
        assert forged["status"].get("message") is None
        change = {"status": {"message": "by status"}, "spec": {"schedulingGates": []}}
        true = await stage.api.patch(PODS, "one", change, namespace=stage.namespace, subresource=Subresource.STATUS)
        assert true["status"]["message"] == "by status"
        assert true["spec"]["schedulingGates"] == [GATE]

    async def test_scale_reads_and_writes_the_count(self, stage):
        await stage.api.create(DEPLOYMENTS, stage.deployment("web"))
        at = {"namespace": stage.namespace, "subresource": Subresource.SCALE}
        scale = await stage.api.get(DEPLOYMENTS, "web", **at)
        assert (scale["kind"], scale["spec"].get("replicas", 0)) == ("Scale", 0)
        scaled = await stage.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, **at)
        assert scaled["spec"]["replicas"] == 2
        assert (await stage.get(DEPLOYMENTS, "web"))["spec"]["replicas"] == 2
