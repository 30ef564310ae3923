"""What the chart refuses: every key that it does not know, and every value that would render nonsense."""

import dataclasses
import json

import pytest
import yaml

from autoscaler.cli.commands.agent import LEAST_DCGM_WINDOW_S
from autoscaler.domain.policy import Policy, ReclaimMode
from autoscaler.gpus.agent.node_agent import LEAST_INTERVAL_S
from autoscaler.operator.process.policy_file import parse_policy, public_name
from tests.chart.rendering import CHART, VALUE_SETS, RefusedValuesError, render, render_set

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
FREE = {"global", "nodeAffinity", "podAffinity", "podAntiAffinity"} | {
    "configMapKeyRef",
    "fieldRef",
    "resourceFieldRef",
    "secretKeyRef",
}
"""Helm's own, and what the API server judges."""

MAIL = {"server": "mail.example", "from": "edl@example.org", "to": ["ml@example.org"]}

BAD = {
    "unknown key": ({"replicas": 2}, "replicas"),
    "unknown key inside": ({"operator": {"replica": 2}}, "/operator"),
    "misspelt policy": ({"policy": {"reclaims": "planner"}}, "/policy"),
    "unknown mode": ({"policy": {"reclaim": "both"}}, "/policy/reclaim"),
    "negative headroom": ({"policy": {"headroomPercent": -1}}, "/policy/headroomPercent"),
    "headroom above all": ({"policy": {"headroomPercent": 101}}, "/policy/headroomPercent"),
    "headroom of nothing": ({"policy": {"headroom": [{"count": 3}]}}, "/policy/headroom/0"),
    "headroom without count": ({"policy": {"headroom": [{"cpu": "1", "memory": "1Gi"}]}}, "/policy/headroom/0"),
    "bad quantity": ({"policy": {"headroom": [{"cpu": "much", "count": 1}]}}, "/policy/headroom/0/cpu"),
    "text for a number": ({"operator": {"replicas": "two"}}, "/operator/replicas"),
    "half a replica": ({"operator": {"replicas": 1.5}}, "/operator/replicas"),
    "a hundred replicas": ({"operator": {"replicas": 100}}, "/operator/replicas"),
    "log level": ({"operator": {"logLevel": "debug"}}, "/operator/logLevel"),
    "text for yes": ({"rbac": {"create": "yes"}}, "/rbac/create"),
    "tag in repository": ({"image": {"repository": "edl/operator:1"}}, "/image/repository"),
    "digest": ({"image": {"digest": "latest"}}, "/image/digest"),
    "pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    "namespace": ({"namespaces": ["Research"]}, "/namespaces/0"),
    "namespace twice": ({"namespaces": ["a", "a"]}, "/namespaces"),
    "core at surplus": ({"priorityClasses": {"core": -1}}, "/priorityClasses/core"),
    "core too high": ({"priorityClasses": {"core": 2_000_000_000}}, "/priorityClasses/core"),
    "peer": ({"networkPolicy": {"metricsFrom": [{"namespace": "monitoring"}]}}, "/networkPolicy/metricsFrom/0"),
    "empty peer": ({"networkPolicy": {"metricsFrom": [{}]}}, "/networkPolicy/metricsFrom/0"),
    "port": ({"networkPolicy": {"apiServerPorts": [0]}}, "/networkPolicy/apiServerPorts/0"),
    "no port of DNS": ({"networkPolicy": {"dnsPorts": []}}, "/networkPolicy/dnsPorts"),
    "no ports": ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
    "interval": ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "/metrics/serviceMonitor/interval"),
    "endpoint": ({"etcd": {"external": {"endpoints": ["etcd:2379"]}}}, "/etcd/external/endpoints/0"),
    "endpoint with a password": (
        {"etcd": {"external": {"endpoints": ["https://root:secret@etcd:2379"]}}},
        "/etcd/external/endpoints/0",
    ),
    "storage": ({"etcd": {"storage": {"size": "big"}}}, "/etcd/storage/size"),
    "secret's name": ({"etcd": {"existingSecret": "No Name"}}, "/etcd/existingSecret"),
    "toleration": ({"operator": {"tolerations": [{"effect": "Never"}]}}, "/operator/tolerations/0/effect"),
    "no notice": ({"policy": {"idleReclaim": "act", "idleNoticeSeconds": 59}}, "/policy/idleNoticeSeconds"),
    "env without name": ({"operator": {"extraEnv": [{"value": "1"}]}}, "/operator/extraEnv/0"),
    "moving without elastic": (
        {"operator": {"elasticServers": False, "moveServers": True}},
        "operator.moveServers: needs operator.elasticServers",
    ),
    "two etcds": (
        {"etcd": {"enabled": True, "external": {"endpoints": ["https://etcd:2379"]}}},
        "etcd.external.endpoints: cannot be combined with etcd.enabled",
    ),
    "promised secret": (
        {"etcd": {"external": {"endpoints": ["https://etcd:2379"], "password": True}}},
        "etcd.external.secretName: is missing",
    ),
    "ingress of the page without TLS": (
        {"page": {"enabled": True, "ingress": {"enabled": True, "host": "edl.example"}}},
        "page.ingress.tlsSecretName: is missing",
    ),
    "mail without addresses": ({"notices": {"mail": {"server": "mail.example"}}}, "notices.mail: needs from and to"),
    "mail's password in clear": (
        {"notices": {"mail": MAIL | {"user": "edl", "existingSecret": "mail", "tls": "none"}}},
        "notices.mail.tls: is none",
    ),
    "mail without its secret": (
        {"notices": {"mail": MAIL | {"user": "edl"}}},
        "notices.mail.existingSecret: is missing",
    ),
    "receiver of mail": ({"notices": {"mail": {"to": ["Ann <ann@example.org>"]}}}, "/notices/mail/to/0"),
    "no account": ({"serviceAccount": {"create": False}}, "serviceAccount.name: name the account"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_value_is_refused_by_its_path(case):
    values, words = BAD[case]
    with pytest.raises(RefusedValuesError) as refused:
        render(values)
    assert words in str(refused.value)


def test_a_window_is_refused_where_the_agent_would_refuse_it():
    """Below two minutes with an exporter's page, else below an interval: agents that never start watch nothing."""
    url = "http://$(EDL_NODE_ADDRESS):9400/metrics"
    assert LEAST_DCGM_WINDOW_S == 120.0
    assert LEAST_INTERVAL_S == 5.0
    for window in ("0s", "4s", "0m", "0h"):
        with pytest.raises(RefusedValuesError, match=f"agent.window: is {window}; it is 5s at least"):
            render({"agent": {"enabled": True, "window": window}})
    for window in ("119s", "1m"):
        with pytest.raises(RefusedValuesError, match=f"agent.window: is {window}; with agent.dcgmUrl"):
            render({"agent": {"enabled": True, "dcgmUrl": url, "window": window}})
    for agent in ({"dcgmUrl": url, "window": "120s"}, {"dcgmUrl": url, "window": "1h"}, {"window": "5s"}):
        assert f"--window={agent['window']}" in str(render({"agent": {"enabled": True} | agent}))


def test_an_ingress_of_the_page_without_a_certificate_has_to_be_confirmed():
    ingress = {"enabled": True, "host": "edl.example", "tlsEndsElsewhere": True}
    rendered = render({"page": {"enabled": True, "ingress": ingress}})
    assert "Ingress" in {thing["kind"] for thing in rendered}


def test_no_object_takes_unknown_keys():
    """A key that nobody reads is a slip; maps by a user's own keys tell what their values are."""
    open_ones = [path for path, node in _objects(SCHEMA, "") if not _is_closed(node)]
    assert {path.rpartition("/")[2] for path in open_ones} == FREE


def test_every_value_is_in_the_schema_and_the_other_way_round():
    assert _leaves(VALUES, SCHEMA) == set()


def test_policy_has_the_settings_of_the_planner():
    known = {public_name(field.name) for field in dataclasses.fields(Policy)}
    assert set(SCHEMA["properties"]["policy"]["properties"]) == known


def test_settings_of_policy_have_the_planners_types():
    wanted = {bool: "boolean", int: "integer", float: "number", tuple: "array"}
    for field in dataclasses.fields(Policy):
        setting = SCHEMA["properties"]["policy"]["properties"][public_name(field.name)]
        text = ["string", "boolean"] if "off" in setting.get("enum", ()) else "string"
        assert setting["type"] == wanted.get(type(field.default), text), field.name


def test_off_without_quotes_is_off():
    """YAML reads it as false, and a user was told "got boolean, want string"."""
    quoted, unquoted = (
        render({"agent": {"enabled": True}, "policy": {"idleReclaim": word}}) for word in ("off", yaml.safe_load("off"))
    )
    assert _rules_of(unquoted) == _rules_of(quoted)
    assert _rules_of(quoted) != _rules_of(render({"agent": {"enabled": True}}))
    (page,) = (thing["data"]["policy.yaml"] for thing in unquoted if thing["metadata"]["name"] == "edl-policy")
    assert parse_policy(yaml.safe_load(page)).idle_reclaim is ReclaimMode.OFF
    for word in (True, "false"):
        with pytest.raises(RefusedValuesError, match="/policy/idleReclaim"):
            render({"policy": {"idleReclaim": word}})


def _rules_of(objects):
    return [(thing["kind"], thing["metadata"]["name"], thing["rules"]) for thing in objects if "rules" in thing]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_operator_reads_the_policy_that_the_chart_writes(name):
    (page,) = (thing["data"]["policy.yaml"] for thing in render_set(name) if thing["metadata"]["name"] == "edl-policy")
    policy = parse_policy(yaml.safe_load(page))
    assert policy.reclaim == VALUE_SETS[name].get("policy", {}).get("reclaim", "scheduler")


@pytest.mark.parametrize("name", ["reclaim", "admission", "fairness"])
def test_choices_of_policy_are_the_planners(name):
    values = {field.name: field.default for field in dataclasses.fields(Policy)}
    assert set(SCHEMA["properties"]["policy"]["properties"][name]["enum"]) == set(type(values[name]))


def _objects(node, path):
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for key, inner in node.items():
            yield from _objects(inner, f"{path}/{key}")


def _is_closed(node):
    return node.get("additionalProperties") not in (None, True)


def _leaves(values, node):
    """Paths that only one of the two knows; of policy the schema knows more, with defaults in the planner."""
    node = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    if "properties" not in node or not isinstance(values, dict) or not values:
        return set()
    known = node["properties"]
    wrong = set(values) ^ set(known) - {"global"}
    if known is SCHEMA["properties"]["policy"]["properties"] or set(known) <= {"requests", "limits", "claims"}:
        wrong = set(values) - set(known)
    return wrong.union(*(_leaves(values[name], known[name]) for name in values if name in known))
