"""Nodes, workloads and priority classes as the API server has them."""

import pytest

from autoscaler.clusters.kubernetes.parsing.deployment_objects import (
    conflicting_job,
    hpa_target,
    job_of_master,
    parse_workload,
)
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_daemonset, parse_node, reserve_for_daemons
from autoscaler.clusters.kubernetes.parsing.object_trimming import trim_workload
from autoscaler.clusters.kubernetes.parsing.priority_classes import find_class_problems, parse_priority_classes
from autoscaler.domain import Reclaim, Resources, Taint, TaintEffect
from tests.unit.clusters.kubernetes.raw_objects import UID, condition, template


def raw_node(name="n1", *, labels=None, ready="True", taints=(), meta=None, **spec):
    return {
        "metadata": {"name": name, "labels": labels or {}, **(meta or {})},
        "spec": {"taints": list(taints), **spec},
        "status": {
            "allocatable": {
                "cpu": "3920m",
                "memory": "15Gi",
                "pods": "110",
                "nvidia.com/gpu": "8",
                "hugepages-1Gi": "0",
            },
            "conditions": [condition("Ready", ready)],
        },
    }


def test_node_offers_what_is_allocatable():
    """GPUs by their own count, everything else by its name."""
    node = parse_node(raw_node(labels={"zone": "a"}))
    assert node.allocatable == Resources(cpu_milli=3920, memory_bytes=15 << 30, gpu_count=8, extended=(("pods", 110),))
    assert node.labels == {("zone", "a")}
    assert node.is_open()


@pytest.mark.parametrize(
    ("raw", "is_draining"),
    [
        (raw_node(unschedulable=True), False),
        (raw_node(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
        (raw_node(labels={"edl.dev/drain": ""}), True),
        (raw_node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]), True),
        (raw_node(taints=[{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]), True),
    ],
)
def test_node_that_takes_nothing_new(raw, is_draining):
    """Cordoned: no growth; announced as leaving: EDL's pods leave too (rule 13)."""
    node = parse_node(raw)
    assert node.is_cordoned
    assert node.is_draining is is_draining


def test_readiness_is_the_condition_and_its_taints_are_left_out():
    """Admission makes every pod tolerate them, so as taints they would say nothing."""
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "slow", "effect": "PreferNoSchedule"},
    ]
    node = parse_node(raw_node(ready="Unknown", taints=taints))
    assert not node.is_ready
    assert node.taints == {Taint(key="gpu", value="yes", effect=TaintEffect.NO_SCHEDULE)}


def test_new_node_keeps_room_for_daemons_that_have_not_arrived():
    """For 60 s, and only for those that it accepts (rule 12)."""
    everywhere = parse_daemonset(
        {
            "metadata": {"namespace": "kube-system", "name": "log"},
            "spec": {"template": template(cpu="200m", memory="1Gi")},
        }
    )
    elsewhere = parse_daemonset(
        {
            "metadata": {"namespace": "kube-system", "name": "arm"},
            "spec": {"template": template(cpu="3", spec={"nodeSelector": {"arch": "arm"}})},
        }
    )
    node = parse_node(raw_node())

    def left(now_s, arrived=frozenset()):
        daemonsets = [everywhere, elsewhere]
        kept = reserve_for_daemons(node, created_at_s=100.0, daemonsets=daemonsets, arrived=arrived, now_s=now_s)
        return kept.allocatable

    assert left(159.0) == node.allocatable - everywhere.shape.requests
    assert left(159.0, {"kube-system/log"}) == node.allocatable
    assert left(160.0) == node.allocatable


CLASSES = [
    {"metadata": {"name": "edl-core"}, "value": 0, "preemptionPolicy": "Never"},
    *({"metadata": {"name": f"edl-surplus-{k}"}, "value": -k, "preemptionPolicy": "Never"} for k in range(1, 9)),
    {"metadata": {"name": "high"}, "value": 1000},
]


def with_class(name, **fields):
    return [{**raw, **fields} if raw["metadata"]["name"] == name else raw for raw in CLASSES]


def test_classes_of_the_chart_are_right():
    """Surplus below the default, core level with it, none preempts (rules 3 and 4)."""
    classes = parse_priority_classes(CLASSES)
    assert find_class_problems(classes, Reclaim.SCHEDULER) == ()
    assert (classes.value_of(None), classes.value_of("high"), classes.value_of("no")) == (0, 1000, None)
    assert classes.value_of("system-node-critical") == 2_000_001_000


@pytest.mark.parametrize(
    ("raws", "said"),
    [
        (CLASSES[1:], "edl-core is missing"),
        (with_class("edl-core", value=5), "edl-core has value 5"),
        (with_class("edl-core", preemptionPolicy="PreemptLowerPriority"), "edl-core needs preemptionPolicy Never"),
        (with_class("edl-surplus-1", value=0), "edl-surplus-1 has value 0, pods without a class have 0"),
        (with_class("edl-surplus-3", value=-2), "edl-surplus-3 has value -2, edl-surplus-2 has -2"),
        (with_class("edl-surplus-8", value=-11), "cluster-autoscaler treats pods below -10"),
        (with_class("edl-surplus-4", preemptionPolicy=None), "edl-surplus-4 needs preemptionPolicy Never"),
        ([*CLASSES, {"metadata": {"name": "low"}, "value": -3, "globalDefault": True}], "pods without a class have -3"),
    ],
)
def test_classes_that_would_let_surplus_stand_above_others_are_refused(raws, said):
    """Each in words that name the class (rule 3: a condition refuses to run)."""
    assert said in "\n".join(find_class_problems(parse_priority_classes(raws), Reclaim.SCHEDULER))


def test_graded_classes_are_not_asked_for_when_the_planner_reclaims():
    """Surplus stands at core's level then (rule 1)."""
    level = {"metadata": {"name": "edl-surplus"}, "value": 0, "preemptionPolicy": "Never"}
    assert find_class_problems(parse_priority_classes([CLASSES[0], level]), Reclaim.PLANNER) == ()
    assert "edl-surplus is missing" in find_class_problems(parse_priority_classes(CLASSES[:1]), Reclaim.PLANNER)[0]


def deployment(replicas=3, **meta):
    spec = {
        "template": template(spec={"priorityClassName": "high"}),
        **({} if replicas is None else {"replicas": replicas}),
    }
    return {"metadata": {"namespace": "shop", "name": "web", **meta}, "spec": spec}


def hpa(desired=0, most=10, *, kind="Deployment", api="apps/v1", name="web"):
    return {
        "metadata": {"namespace": "shop", "name": "h"},
        "spec": {"maxReplicas": most, "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": name}},
        "status": {"desiredReplicas": desired},
    }


@pytest.mark.parametrize(
    ("raw", "scaler", "wanted", "most"),
    [
        (deployment(3), None, 3, 0),
        (deployment(None), None, 1, 0),
        (deployment(3), hpa(7), 7, 10),  # announced growth
        (deployment(3), hpa(2), 3, 10),
        (deployment(0), hpa(7), 0, 10),  # at 0 an autoscaler stops by itself
    ],
)
def test_workload_wants_what_it_will_have_soon(raw, scaler, wanted, most):
    """Growth that an HPA announces is demand before the pods are there."""
    found = parse_workload(raw, scaler, parse_priority_classes(CLASSES))
    assert (found.name, found.priority) == ("shop/web", 1000)
    assert (found.desired_replicas, found.max_replicas) == (wanted, most)


@pytest.mark.parametrize(
    ("reason", "status", "wanted"),
    [("FailedCreate", "True", 3), ("FailedCreate", "False", 7), ("FailedDelete", "True", 7)],
)
def test_replicas_that_the_api_server_refuses_are_not_announced(reason, status, wanted):
    """A namespace without quota, a Deployment of many replicas: trainers left for pods that never came."""
    failure = condition("ReplicaFailure", status, reason=reason)
    raw = {**deployment(7), "status": {"replicas": 3, "conditions": [failure]}}
    assert parse_workload(raw, None, parse_priority_classes(CLASSES)).desired_replicas == wanted


@pytest.mark.parametrize(
    ("meta", "spec", "status"),
    [
        ({}, {"paused": True}, {}),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, {}),
        ({"generation": 3}, {}, {"observedGeneration": 2}),
        ({"generation": 1}, {}, {}),
    ],
    ids=["paused", "being deleted", "its newest ReplicaSet is refused", "never seen by its controller"],
)
@pytest.mark.parametrize("form", [lambda raw: raw, trim_workload], ids=["whole", "slim"])
def test_replicas_that_no_controller_makes_are_not_announced(form, meta, spec, status):
    """Each stays so for as long as a tenant likes: all free room was kept for pods that nobody would make (A11)."""
    raw = deployment(7, **meta)
    raw = {**raw, "spec": raw["spec"] | spec, "status": {"replicas": 3} | status}
    workload = parse_workload(form(raw), hpa(9), parse_priority_classes(CLASSES))
    assert (workload.desired_replicas, workload.max_replicas) == (3, 10)


def test_replicas_that_the_controller_is_making_are_announced():
    """It has seen the newest specification: its pods are on their way."""
    raw = {**deployment(7, generation=3), "status": {"replicas": 3, "observedGeneration": 3}}
    assert parse_workload(trim_workload(raw), hpa(9), parse_priority_classes(CLASSES)).desired_replicas == 9


def test_masters_deployment_is_no_workload():
    """It is EDL's own; its UID leads to the job."""
    owner = {"apiVersion": "edl.dev/v1alpha1", "kind": "TrainingJob", "name": "digits", "uid": UID, "controller": True}
    labels = {"edl.dev/role": "master", "edl.dev/job": "digits"}
    raw = deployment(ownerReferences=[owner], labels=labels)
    assert parse_workload(raw, None, parse_priority_classes(CLASSES)) is None
    assert job_of_master(raw) == UID
    assert job_of_master(deployment(labels=labels)) == ""


def test_autoscaler_upon_a_job_is_found():
    """EDL leaves that count alone (A10)."""
    assert conflicting_job(hpa(kind="TrainingJob", api="edl.dev/v1alpha1", name="digits")) == "shop/digits"
    assert conflicting_job(hpa()) is None
    assert hpa_target(hpa()).workload == "shop/web"
    assert hpa_target(hpa(kind="StatefulSet")).workload is None
