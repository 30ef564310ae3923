"""Pods as the API server has them: whose they are, where they stand, what may be done for them."""

import pytest

from autoscaler.clusters.kubernetes.builders.member_pods import build_pod
from autoscaler.clusters.kubernetes.gangs.gang_pods import is_as_created
from autoscaler.clusters.kubernetes.parsing.pod_objects import (
    PodContext,
    assign_master_ordinals,
    deployment_of,
    parse_pod,
    unschedulable_reason,
)
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec
from autoscaler.domain import PodPhase, Reclaim, Role, TaintEffect, Tier, Toleration
from tests.unit.clusters.kubernetes.raw_objects import (
    CREATED_S,
    SETTINGS,
    UID,
    as_stored,
    condition,
    kube_job,
    placement,
    raw_pod,
)

CONTEXT = PodContext(jobs={UID: "team-a/digits"}, masters={"team-a/digits-master": UID})
WEB_OWNER = {"kind": "ReplicaSet", "name": "web-7c9", "controller": True}


def own(role=Role.TRAINER, *, is_gated=False, **fields):
    job = kube_job(server={})
    return as_stored(build_pod(job, placement(role, **fields), SETTINGS, is_gated=is_gated))


def test_own_pod_is_read_with_its_identity_and_node():
    """Role, ordinal, tier and owner come from what was fixed at creation; un-gated it stands where it is tied to."""
    pod = parse_pod(own(ordinal=3, tier=Tier.SURPLUS, grade=5, node="n7"), CONTEXT)
    assert (pod.name, pod.job, pod.role, pod.ordinal, pod.tier) == (
        "team-a/digits-trainer-3",
        "team-a/digits",
        Role.TRAINER,
        3,
        Tier.SURPLUS,
    )
    assert (pod.phase, pod.node, pod.nominated_node) == (PodPhase.PENDING, None, "n7")
    assert pod.created_at_s == CREATED_S


def test_gated_pod_of_ours_is_in_no_view():
    """It is no size and no room (ADR 0150)."""
    assert parse_pod(own(is_gated=True), CONTEXT) is None


def test_own_pod_behind_an_external_gate_keeps_its_room_and_waits():
    """Our gate is lifted, somebody else's is not: the proved room stays spoken for."""
    pod = own(node="n7")
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    read = parse_pod(pod, CONTEXT)
    assert (read.phase, read.place) == (PodPhase.PENDING, "n7")


@pytest.mark.parametrize(
    "forge",
    [
        lambda pod: pod["metadata"].pop("ownerReferences"),
        lambda pod: pod["metadata"]["ownerReferences"][0].update(uid="another"),
        lambda pod: pod["metadata"]["ownerReferences"][0].update(controller=False),
        lambda pod: pod["metadata"]["ownerReferences"][0].update(apiVersion="batch/v1"),
        lambda pod: pod["metadata"].update(namespace="team-b"),
        lambda pod: pod["metadata"]["labels"].update({"edl.dev/job": "other"}),
        lambda pod: pod["metadata"]["labels"].update({"edl.dev/role": "master"}),
        lambda pod: pod["metadata"]["labels"].update({"edl.dev/tier": "external"}),
        lambda pod: pod["metadata"]["labels"].update({"edl.dev/ordinal": "-1"}),
        lambda pod: pod["metadata"]["labels"].update({"edl.dev/ordinal": "1"}),
        lambda pod: pod["metadata"]["labels"].update({"edl.dev/role": "server"}),
        lambda pod: pod["metadata"].update(name="digits-trainer-0-copy"),
    ],
)
def test_forged_labels_make_an_external_pod(forge):
    """Labels alone make nobody a trainer: EDL would delete what is not its own."""
    pod = own()
    forge(pod)
    read = parse_pod(pod, CONTEXT)
    assert (read.role, read.tier, read.job) == (Role.EXTERNAL, Tier.EXTERNAL, None)


def test_master_is_found_through_its_deployment_and_numbered():
    """A master's pod has a name of chance: its ordinal is given by whoever sees all of them."""
    pod = raw_pod(
        "digits-master-5d4f-abcde",
        node="n1",
        labels={
            "edl.dev/job": "digits",
            "edl.dev/role": "master",
            "edl.dev/tier": "core",
            "pod-template-hash": "5d4f",
        },
        owner={"kind": "ReplicaSet", "name": "digits-master-5d4f", "controller": True},
    )
    context = PodContext(
        jobs=CONTEXT.jobs, masters=CONTEXT.masters, master_ordinals={"uid-digits-master-5d4f-abcde": 1}
    )
    read = parse_pod(pod, context)
    assert (read.role, read.ordinal, read.job) == (Role.MASTER, 1, "team-a/digits")
    assert parse_pod(pod, PodContext(jobs=CONTEXT.jobs)).role is Role.EXTERNAL  # a Deployment that nobody knows


def test_masters_keep_their_ordinals_while_others_come_and_go():
    """Two pods of one job and role never share an ordinal, and none changes."""
    first = assign_master_ordinals({}, ["b", "a"])
    assert first == {"a": 0, "b": 1}
    assert assign_master_ordinals(first, ["c", "b"]) == {"b": 1, "c": 0}
    assert assign_master_ordinals(first, ["c", "b", "a"]) == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        (raw_pod(), PodPhase.PENDING),
        (raw_pod(schedulingGates=[{"name": "x"}]), PodPhase.GATED),
        (raw_pod(node="n1"), PodPhase.STARTING),
        (raw_pod(node="n1", status={"conditions": [condition("Ready", "True")]}), PodPhase.READY),
        (raw_pod(node="n1", meta={"deletionTimestamp": "2026-01-02T03:05:00Z"}), PodPhase.TERMINATING),
    ],
)
def test_phase_follows_binding_readiness_and_deletion(pod, phase):
    """A pod occupies its node from binding until it is gone (rule 13)."""
    assert parse_pod(pod, CONTEXT).phase is phase


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_terminal_pod_occupies_nothing(phase):
    """Also while it is being deleted (rule 13)."""
    pod = raw_pod(node="n1", status={"phase": phase}, meta={"deletionTimestamp": "2026-01-02T03:05:00Z"})
    assert parse_pod(pod, CONTEXT) is None


def test_verdict_and_nomination_are_read():
    """Demand is what the scheduler has judged; its nomination is occupied room (rules 1, 11 and 14)."""
    verdict = condition("PodScheduled", "False", reason="Unschedulable", lastTransitionTime="2026-01-02T03:04:15Z")
    pod = raw_pod(status={"conditions": [verdict], "nominatedNodeName": "n3"})
    read = parse_pod(pod, PodContext(offset_s=-CREATED_S))
    assert (read.created_at_s, read.unschedulable_since_s, read.place) == (0.0, 10.0, "n3")
    assert parse_pod(raw_pod(), CONTEXT).unschedulable_since_s is None


@pytest.mark.parametrize(
    ("reclaim", "fields", "expected"),
    [
        (Reclaim.SCHEDULER, {}, True),
        (Reclaim.SCHEDULER, {"priority": -8}, False),  # no tier below
        (Reclaim.SCHEDULER, {"priority": -7}, True),
        (Reclaim.SCHEDULER, {"preemptionPolicy": "Never"}, False),
        (Reclaim.SCHEDULER, {"node": "n1"}, False),
        (Reclaim.PLANNER, {}, False),
    ],
)
def test_who_can_preempt(reclaim, fields, expected):
    """Rule 1: what the scheduler will do by itself is left to it."""
    assert parse_pod(raw_pod(**fields), PodContext(reclaim=reclaim)).can_preempt is expected


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulerName": "volcano"},
        {"schedulingGates": [{"name": "x"}]},
        {"resourceClaims": [{"name": "gpu"}]},
        {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]},
        {"volumes": [{"name": "d", "ephemeral": {}}]},
        {"tolerations": [{"key": "k", "operator": "Gt", "value": "3"}]},
        {"workloadRef": {"name": "w"}},
    ],
)
def test_what_the_fit_test_does_not_know_is_not_modelled(spec):
    """EDL does nothing for such a pod while it waits (rule 14); once it stands it just occupies."""
    assert not parse_pod(raw_pod(**spec), CONTEXT).is_modelled
    assert parse_pod(raw_pod(node="n1", **spec), CONTEXT).is_modelled


def test_spread_and_ports_are_modelled_as_rooms_that_may_be_refused():
    """They cost at most two trainers (rule 15)."""
    pod = raw_pod(topologySpreadConstraints=[{"maxSkew": 1}], affinity={"podAntiAffinity": {}})
    assert parse_pod(pod, CONTEXT).is_modelled


def test_preemption_is_told_from_other_ends():
    """DisruptionTarget by the scheduler, not by a drain (status and metrics tell them apart)."""
    pod = own()
    pod["status"]["conditions"] = [condition("DisruptionTarget", "True", reason="PreemptionByScheduler")]
    assert parse_pod(pod, CONTEXT).is_preempted
    assert parse_pod(pod, CONTEXT).phase is PodPhase.TERMINATING  # its deletion follows
    pod["status"]["conditions"][0]["reason"] = "EvictionByEvictionAPI"
    assert not parse_pod(pod, CONTEXT).is_preempted


def test_web_pod_knows_its_deployment():
    """From the name of its ReplicaSet less the hash: ReplicaSets are not watched (rule 19)."""
    pod = raw_pod(labels={"pod-template-hash": "7c9"}, owner=WEB_OWNER)
    assert parse_pod(pod, CONTEXT).workload == "team-a/web"
    assert deployment_of(raw_pod(owner=WEB_OWNER)) is None


def test_pod_level_request_stands_in_place_of_the_containers():
    """As kube-scheduler counts since 1.34; a limit alone is the request where no container asks."""
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "3"}}}],
        "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}},
        "overhead": {"cpu": "250m"},
    }
    found = pod_request(spec)
    assert (found.cpu_milli, found.memory_bytes) == (2250, 1 << 30)


def test_infeasible_resize_does_not_count():
    """The kubelet has refused it: what is in force counts."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}
    status = {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "conditions": [condition("PodResizePending", "True", reason="Infeasible")],
    }
    assert pod_request(spec, status).cpu_milli == 1000
    assert pod_request(spec, {**status, "conditions": []}).cpu_milli == 8000


def test_quantity_beyond_counting_fits_nowhere():
    """Reading never raises, and never counts too little."""
    spec = {"containers": [{"resources": {"requests": {"memory": "1e60", "cpu": "1u"}}}]}
    found = pod_request(spec)
    assert (found.memory_bytes, found.cpu_milli) == (2**63 - 1, 1)


def test_tolerations_are_those_that_kubernetes_honours():
    """No effect means each effect; what it would not match by is none, and readiness is not for pods to tolerate."""
    said = [
        {"key": "a", "value": "1"},
        {"key": "b", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "c", "operator": "Equal", "value": "2", "effect": "NoExecute"},
        {"key": "d", "operator": "Exists", "effect": "Never"},
        {"key": "e", "operator": "Gt", "value": "3"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        {"operator": "Exists"},
    ]
    assert shape_of_spec({"tolerations": said}, {}).tolerations == frozenset(
        {
            Toleration(key="a", value="1"),
            Toleration(key="b", effect=TaintEffect.NO_SCHEDULE),
            Toleration(key="c", value="2", effect=TaintEffect.NO_EXECUTE),
            Toleration(),
        }
    )


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (lambda pod: None, True),
        (lambda pod: pod["metadata"].update(name="digits-trainer-7"), False),
        (lambda pod: pod["metadata"]["labels"].update({"edl.dev/role": "master"}), False),
        (lambda pod: pod["spec"].pop("affinity"), False),
    ],
)
def test_a_pod_counts_if_it_is_as_edl_creates_it(spoil, counts):
    """Named as its labels say, and tied to a node: nothing else holds up a start, or makes one whole (A11)."""
    pod = own(ordinal=0, tier=Tier.CORE, node="n7")
    spoil(pod)
    assert is_as_created(pod, kube_job()) is counts


@pytest.mark.parametrize(
    ("status", "reason", "message", "told"),
    [
        ("False", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims", True),
        ("False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", False),
        ("False", "Unschedulable", "0/2 nodes are available: 2 Too many pods.", False),
        ("False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", False),
        ("True", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims", False),
        ("False", "Unschedulable", "", False),
    ],
)
def test_what_kube_scheduler_says_is_told_where_room_is_not_what_lacks(status, reason, message, told):
    pod = raw_pod(status={"conditions": [condition("PodScheduled", status, reason=reason, message=message)]})
    assert unschedulable_reason(pod) == (f"pod team-a/web-1: {message}" if told else "")
