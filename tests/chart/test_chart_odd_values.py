"""Sixty-eight odd values, each refused or taken by helm as it should be, and every default that null takes away."""

import re

import pytest
import yaml

from tests.chart.rendering import CHART, RefusedValuesError, render

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
ROOM = {"cpu": "1", "memory": "1Gi", "gpu": -1, "count": 1}

REFUSED = [
    ("operator.replicas", -1),
    ("operator.replicas", 2.5),
    ("operator.replicas", "2"),
    ("operator.replicas", 1000),
    ("operator.logLevel", "debug"),
    ("operator.logLevel", "TRACE"),
    ("policy.reclaim", "both"),
    ("policy.freeze", "yes"),
    ("policy.headroomPercent", 101),
    ("policy.headroomPercent", -1),
    ("policy.headroom", [{"cpu": "x"}]),
    ("policy.headroom", [ROOM]),
    ("policy.foo", 1),
    ("policy.upWindowSeconds", -5),
    ("image.tag", "a b"),
    ("image.tag", 1.0),
    ("image.digest", "sha256:xyz"),
    ("image.repository", ""),
    ("image.repository", "UPPER/x"),
    ("image.pullPolicy", "always"),
    ("imagePullSecrets", [{"name": "x"}]),
    ("namespaces", ["A_b"]),
    ("namespaces", ["a", "a"]),
    ("namespaces", "a"),
    ("namespaces", [""]),
    ("priorityClasses.core", 2**31),
    ("priorityClasses.core", 1000000001),
    ("priorityClasses.core", -10),
    ("priorityClasses.core", -(2**31)),
    ("priorityClasses.operator", -5),
    ("nameOverride", "x" * 300),
    ("fullnameOverride", "Bad_Name"),
    ("fullnameOverride", "x" * 64),
    ("serviceAccount.name", "a b"),
    ("operator.resources", {"requests": {"cpu": "abc"}}),
    ("operator.resources", {"limit": {}}),
    ("operator.extraEnv", [{"value": "x"}]),
    ("operator.extraEnv", [{"name": "EDL_IMAGE", "value": "evil"}]),
    ("operator.podLabels", {"app.kubernetes.io/component": "etcd"}),
    ("operator.podLabels", {"a b": "c"}),
    ("operator.terminationGracePeriodSeconds", 0),
    ("operator.nodeSelector", {"a": 1}),
    ("operator.tolerations", [{"operator": "Maybe"}]),
    ("operator.affinity", {"x": {}}),
    ("networkPolicy.apiServerPorts", []),
    ("networkPolicy.apiServerPorts", [0]),
    ("networkPolicy.apiServerPorts", [70000]),
    ("metrics.serviceMonitor.interval", "15"),
    ("metrics.serviceMonitor.interval", "soon"),
    ("etcd.enabled", "true"),
    ("etcd.storage.size", "four"),
    ("etcd.storage.size", "0"),
    ("etcd.external.endpoints", ["localhost"]),
    ("etcd.external.endpoints", ["https://x"]),
    ("etcd.external.secretName", "A b"),
    ("unknown", 1),
    ("crd.install", None),
    ("operator", None),
]
TAKEN = [
    ("operator.replicas", 0),
    ("policy.upWindowSeconds", 5),
    ("policy.serverMovesPerMinute", 6),
    ("image.digest", "sha256:" + "a" * 64),
    ("imagePullSecrets", ["x"]),
    ("namespaces", ["kube-system"]),
    ("networkPolicy.metricsFrom", []),
    ("networkPolicy.etcdMetricsFrom", []),
    ("networkPolicy.jobNamespaces", ["nope"]),
    ("etcd.external.endpoints", ["http://x:2379"]),
    ("global", {}),
]


def put(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def groups(values, path=""):
    """(path, keys) of every mapping of values.yaml whose keys the chart names."""
    yield path, list(values)
    for name, value in values.items():
        where = f"{path}.{name}".strip(".")
        if isinstance(value, dict) and value and not where.endswith(("resources", "labels")):
            yield from groups(value, where)


GROUPS = dict(groups(VALUES))


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_an_odd_value_is_refused_by_its_path(path, value):
    """The message names the value, or the group where the value is gone."""
    with pytest.raises(RefusedValuesError) as refused:
        render(put(path, value))
    said = str(refused.value)
    assert any(name in said for name in (path, "/" + path.replace(".", "/"), path.rpartition(".")[2])), said
    assert "nil pointer" not in said


@pytest.mark.parametrize(("path", "value"), TAKEN)
def test_an_unusual_value_is_taken(path, value):
    assert render(put(path, value))


@pytest.mark.parametrize("group", GROUPS)
def test_a_default_that_null_takes_away_is_missed(group):
    """Helm drops the key, and `if` would read what is not there as false: no definition, no roles, no policies."""
    gone = dict.fromkeys(GROUPS[group])
    with pytest.raises(RefusedValuesError) as refused:
        render(put(group, gone) if group else gone)
    missed = {
        name
        for found in re.findall(r"missing propert(?:y|ies) (.*)", str(refused.value))
        for name in re.findall(r"'(\w+)'", found)
    }
    assert set(GROUPS[group]) <= missed


def test_a_label_of_the_charts_own_is_refused_with_words():
    """A second `component` would take the operator's pods out of its Service and its network policy."""
    (operator,) = (thing for thing in render({}) if thing["kind"] == "Deployment")
    for key in operator["spec"]["template"]["metadata"]["labels"]:
        for where in ("operator.podLabels", "metrics.serviceMonitor.labels"):
            with pytest.raises(RefusedValuesError, match="left out: the chart sets this one itself"):
                render(put(where, {key: "x"}))


def test_an_annotation_of_the_charts_own_is_refused_with_words():
    with pytest.raises(RefusedValuesError, match="left out: the chart sets this one itself"):
        render(put("operator.podAnnotations", {"checksum/policy": "x"}))


def test_every_variable_of_the_chart_is_one_that_extra_env_may_not_set():
    """All begin with EDL_, and those are refused."""
    values = {"etcd": {"enabled": True}, "operator": {"moveServers": True}}
    (operator,) = (thing for thing in render(values) if thing["kind"] == "Deployment")
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        with pytest.raises(RefusedValuesError, match="a name that does not begin with EDL_"):
            render(put("operator.extraEnv", [{"name": variable["name"], "value": "x"}]))


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        ({"image": {"repository": ""}}, "image.repository", "docker build -f images/operator.Dockerfile"),
        (
            {"etcd": {"enabled": True, "image": {"repository": ""}}},
            "etcd.image.repository",
            "docker build -f images/etcd.Dockerfile",
        ),
    ],
)
def test_without_an_image_helm_says_how_to_make_one(values, path, words):
    """No default: nobody else can publish what the chart would run (ADR 0163)."""
    with pytest.raises(RefusedValuesError) as refused:
        render(values)
    said = str(refused.value)
    assert f"{path} is not set" in said
    assert words in said
    assert f"--set {path}=REGISTRY/edl/" in said
    assert "docker push REGISTRY/edl/" in said


def test_an_etcd_that_is_not_run_needs_no_image():
    assert render({"etcd": {"image": {"repository": ""}}})
