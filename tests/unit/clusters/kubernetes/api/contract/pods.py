"""What is particular to pods: gates, affinity, classes: a part of the contract that every adapter of `Api` keeps."""

import pytest

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, InvalidError, RefusedBy
from autoscaler.clusters.kubernetes.api.kinds import PODS, PRIORITY_CLASSES
from tests.unit.clusters.kubernetes.api.contract.stage import GATE


@pytest.mark.asyncio
class OfPods:
    """See `KubeApiContract`."""

    async def test_gated_pod_says_so(self, stage):
        made = await stage.api.create(PODS, stage.pod("one", gates=[GATE]))
        conditions = {one["type"]: one.get("reason") for one in made["status"]["conditions"]}
        assert (made["status"]["phase"], conditions) == ("Pending", {"PodScheduled": "SchedulingGated"})
        assert made["spec"]["terminationGracePeriodSeconds"] == 30

    async def test_gate_is_lifted_and_the_node_pinned_in_one_patch(self, stage):
        await stage.api.create(PODS, stage.pod("one", gates=[GATE]))
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["no-such-node"]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        change = {"spec": {"schedulingGates": [], "affinity": affinity}}
        lifted = await stage.api.patch(PODS, "one", change, namespace=stage.namespace)
        assert lifted["spec"]["affinity"] == affinity
        assert not lifted["spec"].get("schedulingGates")

    async def test_affinity_of_the_user_may_be_narrowed_and_not_widened_while_gated(self, stage):
        def required(*terms):
            selector = {"nodeSelectorTerms": list(terms)}
            return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}

        users = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
        pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["no-such-node"]}]}
        await stage.api.create(PODS, stage.pod("one", gates=[GATE], **required(users)))
        for bad in (required(pin), required(users, pin)):
            with pytest.raises(InvalidError):
                await stage.api.patch(PODS, "one", {"spec": bad}, namespace=stage.namespace)
        narrowed = required(users | pin)
        lifted = await stage.api.patch(
            PODS, "one", {"spec": {"schedulingGates": [], **narrowed}}, namespace=stage.namespace
        )
        assert lifted["spec"]["affinity"] == narrowed["affinity"]

    async def test_gates_only_go(self, stage):
        await stage.api.create(PODS, stage.pod("one", gates=[GATE]))
        for gates in ([GATE, {"name": "edl.dev/more"}], [{"name": "edl.dev/more"}]):
            with pytest.raises(InvalidError):
                await stage.api.patch(PODS, "one", {"spec": {"schedulingGates": gates}}, namespace=stage.namespace)

    async def test_what_a_pod_wants_does_not_change(self, stage):
        await stage.api.create(PODS, stage.pod("one", gates=[GATE]))
        for change in ({"terminationGracePeriodSeconds": 5}, {"hostname": "x"}, {"priority": 7}):
            with pytest.raises(InvalidError):
                await stage.api.patch(PODS, "one", {"spec": change}, namespace=stage.namespace)

    async def test_affinity_does_not_change_without_a_gate(self, stage):
        await stage.api.create(PODS, stage.pod("one", nodeSelector={"no": "node"}))
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
        with pytest.raises(InvalidError):
            await stage.api.patch(PODS, "one", {"spec": {"affinity": affinity}}, namespace=stage.namespace)

    async def test_pod_without_containers_is_refused_by_its_field(self, stage):
        with pytest.raises(InvalidError) as refused:
            await stage.api.create(PODS, stage.pod("one", containers=[]))
        assert "spec.containers" in {problem.path for problem in refused.value.problems}

    async def test_unknown_priority_class_is_forbidden(self, stage):
        with pytest.raises(ForbiddenError) as refused:
            await stage.api.create(PODS, stage.pod("one", priorityClassName="no-such-class"))
        assert refused.value.refused_by is RefusedBy.ADMISSION

    async def test_priority_is_settled_at_creation(self, stage):
        name = f"{stage.namespace}-low"
        await stage.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": -3, "preemptionPolicy": "Never"})

        async def is_heeded():
            try:
                await stage.api.check_create(PODS, stage.pod("one", gates=[GATE], priorityClassName=name))
            except ForbiddenError:
                return False
            return True

        try:
            await stage.collect(is_heeded)
            made = await stage.api.create(PODS, stage.pod("one", gates=[GATE], priorityClassName=name))
            assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (-3, "Never")
        finally:
            await stage.api.delete(PRIORITY_CLASSES, name)
