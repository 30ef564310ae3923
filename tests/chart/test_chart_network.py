"""Whom the chart's network policies let in and its monitors find, asked of pods as the operator makes them."""

import pytest

from autoscaler.clusters.kubernetes.builders.master_deployment import build_master
from autoscaler.clusters.kubernetes.builders.pod_environment import MASTER_PORT, METRICS_PORT
from autoscaler.clusters.kubernetes.objects.labels import pod_labels
from autoscaler.domain import Role, Tier
from tests.chart.rendering import render
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, kube_job

ETCD_PORT = 2379
OURS = {"app.kubernetes.io/managed-by": "edl"}
MASTER = build_master(kube_job(), SETTINGS)["spec"]["template"]
TRAINER = pod_labels("digits", Role.TRAINER, ordinal=0, tier=Tier.CORE)


def selects(selector, labels):
    """As Kubernetes reads a label selector; of expressions those that the chart writes."""
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    others = selector.get("matchExpressions", [])
    assert {one["operator"] for one in others} <= {"In"}
    return exact and all(labels.get(one["key"]) in one["values"] for one in others)


def lets(peers, *, namespace, pod):
    """Whether one of the peers, all with a namespace of their own, is that pod."""
    named = {"kubernetes.io/metadata.name": namespace}
    foreign = [peer for peer in peers if "namespaceSelector" in peer]
    return any(
        selects(peer["namespaceSelector"], named) and selects(peer.get("podSelector", {}), pod) for peer in foreign
    )


def peers_of(values, name, direction, port):
    """Who may reach that port, or be reached at it."""
    (policy,) = (thing["spec"] for thing in render(values) if _is_policy(thing, name))
    rules = [rule for rule in policy[direction] if port in {one["port"] for one in rule.get("ports", ())}]
    side = "from" if direction == "ingress" else "to"
    return [peer for rule in rules for peer in rule[side]]


def _is_policy(thing, name):
    return (thing["kind"], thing["metadata"]["name"]) == ("NetworkPolicy", name)


@pytest.mark.parametrize(
    ("namespace", "labels", "may"),
    [
        ("research", MASTER["metadata"]["labels"], True),
        ("research", TRAINER, False),
        ("research", OURS, False),
        ("research", {"edl.dev/role": "master"}, False),
        ("elsewhere", MASTER["metadata"]["labels"], False),
    ],
)
def test_etcd_is_reached_by_masters_of_the_namespaces_that_edl_manages(namespace, labels, may):
    """Trainers and servers have nothing to ask there, and `managed-by: edl` alone opens nothing (ADR 0164)."""
    values = {"namespaces": ["research", "vision"], "etcd": {"enabled": True}}
    assert lets(peers_of(values, "edl-etcd", "ingress", ETCD_PORT), namespace=namespace, pod=labels) == may
    assert lets(peers_of(values, "edl-operator", "egress", MASTER_PORT), namespace=namespace, pod=labels) == may


def test_without_a_list_masters_of_every_namespace_reach_etcd():
    values = {"etcd": {"enabled": True}}
    labels = MASTER["metadata"]["labels"]
    assert lets(peers_of(values, "edl-etcd", "ingress", ETCD_PORT), namespace="anywhere", pod=labels)
    assert not lets(peers_of(values, "edl-etcd", "ingress", ETCD_PORT), namespace="anywhere", pod=OURS)


@pytest.mark.parametrize(
    "chosen", [[], [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}}]]
)
def test_only_who_is_named_reads_metrics_of_etcd(chosen):
    """It makes the page for whoever asks: a stranger who asked without end held up the commits of all jobs."""
    peers = peers_of(
        {"etcd": {"enabled": True}, "networkPolicy": {"etcdMetricsFrom": chosen}}, "edl-etcd", "ingress", 2381
    )
    assert peers == chosen
    assert peers_of({"etcd": {"enabled": True}}, "edl-etcd", "ingress", 2381) == []


@pytest.mark.parametrize("namespaces", [[], ["research"]])
def test_the_masters_monitor_finds_masters_at_their_port(namespaces):
    values = {"namespaces": namespaces, "metrics": {"podMonitor": {"enabled": True}}}
    (monitor,) = (thing["spec"] for thing in render(values) if thing["kind"] == "PodMonitor")
    assert selects(monitor["selector"], MASTER["metadata"]["labels"])
    assert not selects(monitor["selector"], TRAINER)
    assert monitor["namespaceSelector"] == ({"matchNames": namespaces} if namespaces else {"any": True})
    (endpoint,) = monitor["podMetricsEndpoints"]
    (container,) = MASTER["spec"]["containers"]
    assert {"name": endpoint["port"], "containerPort": METRICS_PORT, "protocol": "TCP"} in container["ports"]
    assert set(monitor["podTargetLabels"]) <= MASTER["metadata"]["labels"].keys()


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://exporter/metrics", 80),
        ("https://exporter/metrics", 443),
        ("https://exporter", 443),
        ("http://$(EDL_NODE_ADDRESS):9400/metrics", 9400),
        ("https://[fd00::1]:9443/metrics", 9443),
    ],
)
def test_the_agent_reaches_its_exporter_at_the_port_of_the_url(url, port):
    objects = render({"agent": {"enabled": True, "dcgmUrl": url}, "networkPolicy": {"apiServerPorts": [6443]}})
    (policy,) = (thing["spec"] for thing in objects if _is_policy(thing, "edl-agent"))
    reached = {one["port"] for rule in policy["egress"] for one in rule["ports"]}
    assert reached == {6443, 53, port}
