"""What every adapter of `Api` must do, as tests: subclass `KubeApiContract` and give it a fixture `stage`.

A stage is an API server with an empty namespace, two doors to it (`api` writes as `edl`, `other` as somebody else),
`shortest_s`, the shortest time that a watch can last, and `await stage.collect(probe)`, which lets garbage collection
work until `await probe()` is true.  `await stage.forgotten()` is a kind and a version that the server has forgotten.
"""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest

from autoscaler.clusters.kubernetes.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Refusal,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
)
from autoscaler.clusters.kubernetes.api.port import (
    EventType,
    Preconditions,
    Propagation,
    Scope,
    Subresource,
)

GATE = {"name": "edl.dev/gang"}


@dataclass
class Stage:
    api: Any
    other: Any
    namespace: str
    shortest_s: float
    collect: Any
    forgotten: Any

    @property
    def scope(self):
        return Scope(namespace=self.namespace)

    def config(self, name, *, data=None, **metadata):
        return {"metadata": {"name": name, "namespace": self.namespace, **metadata}, "data": data or {}}

    def pod(self, name, *, gates=(), finalizers=(), **spec):
        container = {"name": "main", "image": "registry.invalid/none:1", "resources": {"requests": {"cpu": "100m"}}}
        metadata = {"name": name, "namespace": self.namespace, "labels": {"app": "x"}, "finalizers": list(finalizers)}
        return {"metadata": metadata, "spec": {"containers": [container], "schedulingGates": list(gates), **spec}}

    def deployment(self, name, *, replicas=0):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": self.pod("x")["spec"]}
        template["spec"].pop("schedulingGates")
        return {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }

    async def get(self, kind, name):
        return await self.api.get(kind, name, namespace=self.namespace)

    async def version(self, kind=CONFIG_MAPS):
        return (await self.api.list(kind, self.scope)).resource_version

    async def watched(self, *, since, count, kind=CONFIG_MAPS, scope=None):
        """The first `count` events, bookmarks left out."""
        found = []
        async with aclosing(
            self.api.watch(kind, scope or self.scope, since=since, timeout_s=20, silence_s=20)
        ) as events:
            async for event in events:
                if event.type is not EventType.BOOKMARK:
                    found.append(event)
                if len(found) == count:
                    break
        return [(event.type.name, event.object["metadata"]["name"]) for event in found], found


def number(obj):
    return int(obj["metadata"]["resourceVersion"])


@pytest.mark.asyncio
class KubeApiContract:
    # Making and reading

    async def test_what_is_made_can_be_read_and_names_its_kind(self, stage):
        made = await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        assert made == await stage.get(CONFIG_MAPS, "one")
        assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"a": "1"})
        assert made["metadata"]["uid"]
        assert made["metadata"]["creationTimestamp"].endswith("Z")
        assert "managedFields" not in made["metadata"]

    async def test_listing_holds_all_of_the_namespace_and_names_their_kind(self, stage):
        made = [await stage.api.create(CONFIG_MAPS, stage.config(f"c-{number}")) for number in range(3)]
        listing = await stage.api.list(CONFIG_MAPS, stage.scope)
        assert [item for item in listing.items if item["metadata"]["name"].startswith("c-")] == made
        assert int(listing.resource_version) >= number(made[-1])

    async def test_listing_over_all_namespaces_contains_it(self, stage):
        made = await stage.api.create(CONFIG_MAPS, stage.config("everywhere"))
        assert made in (await stage.api.list(CONFIG_MAPS)).items

    @pytest.mark.parametrize(
        ("labels", "names"),
        [
            ("tier=core", ["a"]),
            ("tier!=core", ["b", "c"]),
            ("tier in (core, surplus)", ["a", "b"]),
            ("tier notin (core)", ["b", "c"]),
            ("tier", ["a", "b"]),
            ("!tier", ["c"]),
            ("tier,job=x", ["a"]),
        ],
    )
    async def test_labels_select(self, stage, labels, names):
        await stage.api.create(CONFIG_MAPS, stage.config("a", labels={"tier": "core", "job": "x", "test": "1"}))
        await stage.api.create(CONFIG_MAPS, stage.config("b", labels={"tier": "surplus", "job": "y", "test": "1"}))
        await stage.api.create(CONFIG_MAPS, stage.config("c", labels={"test": "1"}))
        listing = await stage.api.list(CONFIG_MAPS, Scope(namespace=stage.namespace, labels=f"test=1,{labels}"))
        assert [item["metadata"]["name"] for item in listing.items] == names

    async def test_fields_select(self, stage):
        for name in ("a", "b"):
            await stage.api.create(CONFIG_MAPS, stage.config(name))
        listing = await stage.api.list(CONFIG_MAPS, Scope(namespace=stage.namespace, fields="metadata.name=b"))
        assert [item["metadata"]["name"] for item in listing.items] == ["b"]

    async def test_versions_rise_over_all_kinds(self, stage):
        versions = [
            number(await stage.api.create(CONFIG_MAPS, stage.config("one"))),
            number(await stage.api.create(SECRETS, stage.config("two"))),
            number(await stage.api.create(CONFIG_MAPS, stage.config("three"))),
        ]
        assert versions == sorted(set(versions))

    async def test_name_taken_is_told_apart(self, stage):
        await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        with pytest.raises(AlreadyExistsError):
            await stage.api.create(CONFIG_MAPS, stage.config("one", data={"a": "2"}))
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "1"}

    async def test_what_is_not_there_is_not_found(self, stage):
        with pytest.raises(NotFoundError):
            await stage.get(CONFIG_MAPS, "none")
        with pytest.raises(NotFoundError):
            await stage.api.patch(CONFIG_MAPS, "none", {"data": {}}, namespace=stage.namespace)
        with pytest.raises(NotFoundError):
            await stage.api.delete(CONFIG_MAPS, "none", namespace=stage.namespace)

    async def test_namespace_that_is_not_there_is_not_found(self, stage):
        body = stage.config("one")
        body["metadata"]["namespace"] = "no-such-namespace"
        with pytest.raises(NotFoundError):
            await stage.api.create(CONFIG_MAPS, body)

    @pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "x" * 254])
    async def test_bad_name_names_its_field(self, stage, name):
        with pytest.raises(InvalidError) as refused:
            await stage.api.create(CONFIG_MAPS, stage.config(name))
        assert [problem.path for problem in refused.value.problems] == ["metadata.name"]

    @pytest.mark.parametrize("value", ["has space", "x" * 64, "-dash"])
    async def test_bad_label_names_its_field(self, stage, value):
        with pytest.raises(InvalidError) as refused:
            await stage.api.create(CONFIG_MAPS, stage.config("one", labels={"a": value}))
        assert {problem.path for problem in refused.value.problems} == {"metadata.labels"}

    # Changing

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

    # Applying

    async def test_apply_makes_changes_and_takes_back_its_own(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1", "b": "1"}))
        applied = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"b": "2"}))
        assert applied["data"] == {"b": "2"}

    async def test_apply_leaves_what_others_set(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        await stage.other.patch(CONFIG_MAPS, "one", {"data": {"theirs": "1"}}, namespace=stage.namespace)
        applied = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}))
        assert applied["data"] == {"a": "2", "theirs": "1"}

    async def test_apply_again_keeps_the_version(self, stage):
        first = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        again = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        assert number(again) == number(first)

    async def test_field_of_another_manager_is_a_conflict_unless_forced(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        await stage.other.patch(CONFIG_MAPS, "one", {"data": {"a": "theirs"}}, namespace=stage.namespace)
        with pytest.raises(ConflictError):
            await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}), is_forced=False)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "theirs"}
        forced = await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}))
        assert forced["data"] == {"a": "2"}

    async def test_field_applied_alike_by_two_is_shared(self, stage):
        """It stays until both have left it, and whoever left has no say in it."""
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1", "b": "1"}))
        await stage.other.apply(CONFIG_MAPS, stage.config("one", data={"a": "1", "b": "1"}), is_forced=False)
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"b": "1"}))
        await stage.other.apply(CONFIG_MAPS, stage.config("one", data={"a": "2"}), is_forced=False)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "2", "b": "1"}

    async def test_apply_by_uid_makes_nothing(self, stage):
        """A status written late does not bring a deleted object back."""
        body = stage.config("gone", uid="00000000-0000-4000-8000-ffffffffffff")
        with pytest.raises(ConflictError):
            await stage.api.apply(CONFIG_MAPS, body)
        with pytest.raises(NotFoundError):
            await stage.get(CONFIG_MAPS, "gone")

    async def test_apply_to_another_object_of_that_name_is_a_conflict(self, stage):
        await stage.api.apply(CONFIG_MAPS, stage.config("one", data={"a": "1"}))
        body = stage.config("one", data={"a": "2"}, uid="00000000-0000-4000-8000-ffffffffffff")
        with pytest.raises(ConflictError):
            await stage.api.apply(CONFIG_MAPS, body)
        assert (await stage.get(CONFIG_MAPS, "one"))["data"] == {"a": "1"}

    async def test_apply_of_status_keeps_the_conditions_of_others(self, stage):
        """Conditions are a map by their type."""
        await stage.api.create(PODS, stage.pod("one", gates=[GATE]))
        condition = {"type": "edl.dev/Drained", "status": "False"}
        body = {"metadata": {"name": "one", "namespace": stage.namespace}, "status": {"conditions": [condition]}}
        applied = await stage.api.apply(PODS, body, subresource=Subresource.STATUS)
        assert {one["type"] for one in applied["status"]["conditions"]} >= {"edl.dev/Drained", "PodScheduled"}
        body["status"]["conditions"] = [condition | {"status": "True"}]
        applied = await stage.api.apply(PODS, body, subresource=Subresource.STATUS)
        held = {one["type"]: one["status"] for one in applied["status"]["conditions"]}
        assert (held["edl.dev/Drained"], held["PodScheduled"]) == ("True", "False")

    # Pods

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
        assert refused.value.refusal is Refusal.ADMISSION

    async def test_priority_is_settled_at_creation(self, stage):
        name = f"{stage.namespace}-low"
        await stage.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": -3, "preemptionPolicy": "Never"})
        try:
            made = await stage.api.create(PODS, stage.pod("one", gates=[GATE], priorityClassName=name))
            assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (-3, "Never")
        finally:
            await stage.api.delete(PRIORITY_CLASSES, name)

    # Going

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
            assert refused.value.refusal is Refusal.NAMESPACE_TERMINATING
        finally:
            await stage.api.patch(CONFIG_MAPS, "hold", {"metadata": {"finalizers": None}}, namespace=stage.namespace)

    # Watching

    async def test_watch_tells_every_change_since_the_listing_in_order(self, stage):
        since = await stage.version()
        await stage.api.create(CONFIG_MAPS, stage.config("one"))
        await stage.api.patch(CONFIG_MAPS, "one", {"data": {"a": "1"}}, namespace=stage.namespace)
        await stage.api.create(CONFIG_MAPS, stage.config("two"))
        await stage.api.delete(CONFIG_MAPS, "one", namespace=stage.namespace)
        words, events = await stage.watched(since=since, count=4)
        assert words == [("ADDED", "one"), ("MODIFIED", "one"), ("ADDED", "two"), ("DELETED", "one")]
        versions = [int(event.resource_version) for event in events]
        assert versions == sorted(set(versions))
        assert versions[0] > int(since)
        assert events[0].object["kind"] == "ConfigMap"
        assert events[-1].object["data"] == {"a": "1"}

    async def test_watch_goes_on_where_another_ended(self, stage):
        since = await stage.version()
        for name in ("one", "two", "three"):
            await stage.api.create(CONFIG_MAPS, stage.config(name))
        _, events = await stage.watched(since=since, count=2)
        words, _ = await stage.watched(since=events[-1].resource_version, count=1)
        assert words == [("ADDED", "three")]

    async def test_object_that_leaves_the_selection_is_deleted_for_its_watch(self, stage):
        scope = Scope(namespace=stage.namespace, labels="tier=core")
        since = await stage.version()
        await stage.api.create(CONFIG_MAPS, stage.config("one", labels={"tier": "core"}))
        for tier in ("surplus", "core"):
            change = {"metadata": {"labels": {"tier": tier}}}
            await stage.api.patch(CONFIG_MAPS, "one", change, namespace=stage.namespace)
        words, _ = await stage.watched(since=since, count=3, scope=scope)
        assert words == [("ADDED", "one"), ("DELETED", "one"), ("ADDED", "one")]

    async def test_watch_ends_by_itself_after_a_bookmark(self, stage):
        """The bookmark is no older than what was asked from, and a watch from it goes on."""
        since = await stage.version()
        length_s = 4 * stage.shortest_s
        types = [
            event
            async for event in stage.api.watch(
                CONFIG_MAPS, stage.scope, since=since, timeout_s=length_s, silence_s=10 * length_s
            )
        ]
        assert {event.type for event in types} == {EventType.BOOKMARK}
        assert int(types[-1].resource_version) >= int(since)
        await stage.api.create(CONFIG_MAPS, stage.config("after"))
        words, _ = await stage.watched(since=types[-1].resource_version, count=1)
        assert words == [("ADDED", "after")]

    async def test_silent_watch_is_cut(self, stage):
        """Half open, or so it seems: nobody waits for its end."""
        since = await stage.version()
        events = stage.api.watch(CONFIG_MAPS, stage.scope, since=since, timeout_s=60, silence_s=stage.shortest_s)
        async with aclosing(events):
            with pytest.raises(UnavailableError) as cut:
                await anext(events)
        assert not cut.value.may_have_happened

    async def test_forgotten_version_is_expired(self, stage):
        kind, since = await stage.forgotten()
        with pytest.raises(ExpiredError):
            await stage.watched(since=since, count=1, kind=kind)


def reference(owner):
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
