"""Deletion: preconditions, grace, finalizers, dependents: a part of the contract that every adapter of `Api` keeps."""

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Preconditions, Propagation
from autoscaler.clusters.kubernetes.api.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RefusedBy,
)
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, NAMESPACES, PODS
from tests.unit.clusters.kubernetes.api.contract.stage import GATE, number


@pytest.mark.asyncio
class Leaving:
    """See `KubeApiContract`."""

    async def test_deletion_of_another_object_of_that_name_is_a_conflict(self, stage):
        made = await stage.api.create(CONFIG_MAPS, stage.config("one"))
        await stage.other.patch(CONFIG_MAPS, "one", {"data": {"b": "1"}}, namespace=stage.namespace)
        for only in (
            Preconditions(uid="00000000-0000-4000-8000-ffffffffffff"),
            Preconditions(resource_version=made["metadata"]["resourceVersion"]),
        ):
            with pytest.raises(ConflictError):
                await stage.api.delete(CONFIG_MAPS, "one", namespace=stage.namespace, only=only)
        only = Preconditions(uid=made["metadata"]["uid"])
        await stage.api.delete(CONFIG_MAPS, "one", namespace=stage.namespace, only=only)
        with pytest.raises(NotFoundError):
            await stage.get(CONFIG_MAPS, "one")

    @pytest.mark.parametrize("gates", [(), (GATE,)], ids=["pending", "gated"])
    async def test_pod_without_a_node_goes_at_once(self, stage, gates):
        await stage.api.create(PODS, stage.pod("one", gates=gates, nodeSelector={"no": "node"}))
        await stage.api.delete(PODS, "one", namespace=stage.namespace, grace_s=30)
        with pytest.raises(NotFoundError):
            await stage.get(PODS, "one")

    async def test_pod_on_a_node_leaves_with_its_grace(self, stage):
        """It stands with a deletionTimestamp; its grace can be shortened and not lengthened; zero ends it."""
        await stage.api.create(PODS, stage.pod("one", nodeName="where-nobody-is"))
        at = {"namespace": stage.namespace}
        await stage.api.delete(PODS, "one", **at)
        told = await stage.get(PODS, "one")
        assert told["metadata"]["deletionGracePeriodSeconds"] == 30
        assert told["metadata"]["deletionTimestamp"] > told["metadata"]["creationTimestamp"]
        await stage.api.delete(PODS, "one", **at, grace_s=40)
        assert number(await stage.get(PODS, "one")) == number(told)
        await stage.api.delete(PODS, "one", **at, grace_s=20)
        assert (await stage.get(PODS, "one"))["metadata"]["deletionGracePeriodSeconds"] == 20
        await stage.api.delete(PODS, "one", **at, grace_s=0)
        with pytest.raises(NotFoundError):
            await stage.get(PODS, "one")

    async def test_finalizer_holds_until_it_is_taken_away(self, stage):
        await stage.api.create(CONFIG_MAPS, stage.config("one", finalizers=["edl.dev/hold"]))
        await stage.api.delete(CONFIG_MAPS, "one", namespace=stage.namespace)
        held = await stage.get(CONFIG_MAPS, "one")
        assert held["metadata"]["deletionTimestamp"]
        with pytest.raises(InvalidError):
            await stage.api.patch(
                CONFIG_MAPS,
                "one",
                {"metadata": {"finalizers": ["edl.dev/hold", "edl.dev/more"]}},
                namespace=stage.namespace,
            )
        since = await stage.version()
        await stage.api.patch(CONFIG_MAPS, "one", {"metadata": {"finalizers": None}}, namespace=stage.namespace)
        with pytest.raises(NotFoundError):
            await stage.get(CONFIG_MAPS, "one")
        words, _ = await stage.watched(since=since, count=1)
        assert words in ([("DELETED", "one")], [("MODIFIED", "one")])

    @pytest.mark.parametrize("propagation", [None, Propagation.BACKGROUND, Propagation.FOREGROUND])
    async def test_dependents_go_with_their_owner(self, stage, propagation):
        owner = await stage.api.create(CONFIG_MAPS, stage.config("owner"))
        await stage.api.create(CONFIG_MAPS, stage.config("owned", ownerReferences=[reference(owner)]))
        await stage.api.delete(CONFIG_MAPS, "owner", namespace=stage.namespace, propagation=propagation)

        async def are_gone():
            listing = await stage.api.list(CONFIG_MAPS, stage.scope)
            return not {"owner", "owned"} & {item["metadata"]["name"] for item in listing.items}

        await stage.collect(are_gone)

    async def test_object_of_two_owners_stays_with_the_one_left(self, stage):
        owners = [await stage.api.create(CONFIG_MAPS, stage.config(name)) for name in ("first", "second")]
        await stage.api.create(CONFIG_MAPS, stage.config("both", ownerReferences=list(map(reference, owners))))
        await stage.api.create(CONFIG_MAPS, stage.config("one", ownerReferences=[reference(owners[0])]))
        await stage.api.delete(CONFIG_MAPS, "first", namespace=stage.namespace)

        async def is_collected():
            names = {item["metadata"]["name"] for item in (await stage.api.list(CONFIG_MAPS, stage.scope)).items}
            return "one" not in names

        await stage.collect(is_collected)
        await stage.get(CONFIG_MAPS, "both")

    async def test_orphans_stay(self, stage):
        owner = await stage.api.create(CONFIG_MAPS, stage.config("owner"))
        await stage.api.create(CONFIG_MAPS, stage.config("owned", ownerReferences=[reference(owner)]))
        await stage.api.delete(CONFIG_MAPS, "owner", namespace=stage.namespace, propagation=Propagation.ORPHAN)

        async def is_orphaned():
            return not (await stage.get(CONFIG_MAPS, "owned"))["metadata"].get("ownerReferences")

        await stage.collect(is_orphaned)
        await stage.get(CONFIG_MAPS, "owned")

    async def test_namespace_on_its_way_out_takes_nothing_new(self, stage):
        await stage.api.create(CONFIG_MAPS, stage.config("hold", finalizers=["edl.dev/hold"]))
        await stage.api.delete(NAMESPACES, stage.namespace)
        try:
            with pytest.raises(ForbiddenError) as refused:
                await stage.api.create(CONFIG_MAPS, stage.config("late"))
            assert refused.value.refused_by is RefusedBy.NAMESPACE_TERMINATING
        finally:
            await stage.api.patch(CONFIG_MAPS, "hold", {"metadata": {"finalizers": None}}, namespace=stage.namespace)


def reference(owner):
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
