"""A file of a saved moment that is wrong is refused with the path of the field, and what to write instead."""

import json
from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, ClusterView, History, Plan, Policy, Resources, Shape
from autoscaler.domain.eligibility import Taint
from autoscaler.errors import InvalidSpecError
from autoscaler.planner import plan
from autoscaler.snapshots import SnapshotContent, format_document, from_document, parse_document, to_document
from autoscaler.snapshots.codec import decode, encode
from master.api.shape import ByName, Fixed, Many, OneOf, Optional, Record, record_of
from tests.unit.planner.setups import job, node, web

VIEW = ClusterView(
    revision=3,
    observed_at_s=75.0,
    nodes=(
        node("n1", gpu=2, labels=frozenset({("zone", "a")}), taints=frozenset({Taint(key="b"), Taint(key="a")})),
        node("n2"),
    ),
    pods=(replace(web("web-0"), nominated_node="gone-0", priority=-3),),
    jobs=(job("digits", servers=2),),
    capabilities=Capabilities(servers_elastic=True),
    history=History(since_s=5.0),
)
SNAPSHOT = SnapshotContent(now_s=75.25, policy=Policy(up_window_s=0.0), view=VIEW, made_by="edl 0.1.0")
TEXT = format_document(to_document(SNAPSHOT))


def changed(old, new):
    assert old in TEXT, old
    return TEXT.replace(old, new, 1)


def test_a_file_is_for_people_too():
    """Units that people write, one line for what fits on one, nothing about what is nothing."""
    assert '"cpu": "500m"' in TEXT
    assert '{"name": "n2", "allocatable": {"cpu": "4"}, "is_ready": true}' in TEXT
    assert TEXT.index('{"key": "a"') < TEXT.index('{"key": "b"')
    assert '"labels": {"zone": "a"}' in TEXT
    assert '"up_window_s": 0.0' in TEXT
    assert max(map(len, TEXT.splitlines())) < 200


def test_the_same_moment_is_the_same_text():
    """Whatever the order in which the adapter listed things."""
    turned = replace(VIEW, nodes=VIEW.nodes[::-1])
    assert format_document(to_document(replace(SNAPSHOT, view=turned))) == TEXT


@pytest.mark.parametrize("count", [2**53 + 1, 2**63 - 1])
def test_large_amounts_stay_exact(count):
    """No amount passes through a float."""
    amounts = Resources(cpu_milli=count, memory_bytes=count, gpu_count=count, extended=(("x/y", count),))
    view = replace(VIEW, nodes=(replace(VIEW.nodes[0], allocatable=amounts),))
    assert parse_document(format_document(to_document(replace(SNAPSHOT, view=view)))).view == view


def test_a_pod_on_a_node_that_is_gone_is_no_error():
    """The domain allows it: the view is what was seen."""
    assert parse_document(TEXT).view.pods[0].nominated_node == "gone-0"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"phase": "pending"', '"phase": "waiting"', r'view.pods\[0\].phase: is "waiting" .*gated, pending'),
        ('"phase": "pending"', '"pase": "pending"', r"view.pods\[0\].pase: unknown field .*did you mean phase"),
        ('"phase": "pending",', "", r"view.pods\[0\].phase: is missing"),
        ('"phase": "pending"', '"phase": "starting"', r"view: pod web-0: starting without a node"),
        ('"name": "n2"', '"name": "n1"', r"view.nodes\[1\].name: n1 is given twice"),
        ('"name": "n2"', '"name": "n2", "name": "n3"', r"view.nodes\[1\].name: is given twice"),
        ('"cpu": "500m"', '"cpu": 500', r"requests.cpu: is 500 .*in quotes"),
        ('"cpu": "500m"', '"cpu": "-1"', r"requests.cpu: .*below zero"),
        ('"cpu": "500m"', '"cpu": "1x"', r"requests.cpu: .*no quantity"),
        ('"gpu_count": 2', '"gpu_count": -2', r"view.nodes\[0\].allocatable.gpu_count: is -2 \(0 or more\)"),
        ('"gpu_count": 2', '"gpu_count": 2.0', r"gpu_count: is 2.0 \(a whole number\)"),
        ('"gpu_count": 2', '"gpu_count": true', r"gpu_count: is true"),
        ('"observed_at_s": 75.0', '"observed_at_s": NaN', r"view.observed_at_s: is nan \(a finite number\)"),
        ('"observed_at_s": 75.0', '"observed_at_s": 1e999', r"view.observed_at_s: is inf"),
        ('"observed_at_s": 75.0', '"observed_at_s": -1', r"view.observed_at_s: is -1.0 \(0 or more\)"),
        ('"observed_at_s": 75.0', '"observed_at_s": "75"', r'view.observed_at_s: is "75" \(a number\)'),
        ('"since_s": 5.0', '"since_s": 9007199254740993', r"since_s: is 9007199254740993"),
        ('"is_ready": true', '"is_ready": 1', r"view.nodes\[0\].is_ready: is 1"),
        ('"min_replicas": 1', '"min_replicas": 9', r"view.jobs\[0\].trainer: .*maxReplicas is 8"),
        ('"nodes": [', '"nodes": "n1", "pods": [', r'view.nodes: is "n1" \(a list\)'),
        ('"effect": "NoSchedule"', '"effect": "No"', r'view.nodes\[0\].taints\[0\].effect: is "No"'),
        ('"version": 1', '"version": 2', r"version: is 2.*use the edl that made the file"),
        ('"version": 1', '"version": "1"', r'version: is "1"'),
        ('"ClusterSnapshot"', '"Pod"', r'kind: is "Pod"'),
        ('"version": 1', '"version": 0', r"version: is 0 .*from 1 to 1"),
        ('"version": 1', '"version": 1, "version": 1', r"version: is given twice"),
        ('"name": "n2"', r'"name": "n\u001b[2J"', r"view.nodes\[1\].name: is .*printable characters"),
        ('"name": "n2"', r'"name": "n\u202e2"', r"view.nodes\[1\].name: is .*printable characters"),
        ('"name": "n2"', r'"name": "n\ud800"', r"view.nodes\[1\].name: is .*printable characters"),
        ('"name": "n2"', '"name": ""', r'view.nodes\[1\].name: is "" .*printable characters'),
        (TEXT, TEXT[: TEXT.index('"observed') + 4], r"it was cut off"),
        (TEXT, "[]", r"the file: holds \[\]"),
        (TEXT, "", r"not JSON"),
        (TEXT, TEXT[:-40], r"not JSON"),
        (TEXT, '{"a":' * 100_000, r"nested|not JSON"),
        ('"revision": 3', f'"revision": {"9" * 5000}', r"not JSON"),
        ('"revision": 3', f'"revision": {"9" * 50}', r"view.revision: is 9+\.\.\. \(at most"),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(old, new, words):
    """Each with the field and what belongs there."""
    with pytest.raises(InvalidSpecError, match=words):
        parse_document(changed(old, new))


def test_a_job_without_requests_is_refused():
    """Its trainers would fit anywhere: what the planner said of them would be about nothing."""
    document = to_document(SNAPSHOT)
    document["view"]["jobs"][0]["trainer"]["shape"]["requests"] = {"cpu": "0"}
    with pytest.raises(InvalidSpecError, match=r"view.jobs\[0\].trainer.shape.requests: requests nothing"):
        from_document(document)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -1.0])
def test_what_could_not_be_read_is_not_written(broken):
    """A file that nobody can read helps nobody."""
    with pytest.raises(InvalidSpecError, match=r"view.history.since_s"):
        to_document(replace(SNAPSHOT, view=replace(VIEW, history=History(since_s=broken))))


def test_an_unknown_age_is_left_out():
    """Of an optional number NaN and None mean the same to the planner (A7)."""
    view = replace(VIEW, jobs=(replace(VIEW.jobs[0], checkpoint_age_s=float("nan")),))
    assert parse_document(json.dumps(to_document(replace(SNAPSHOT, view=view)))).view.jobs[0].checkpoint_age_s is None


def test_nothing_secret_has_a_field():
    """No environment, command, token or path of a pod can get into a file: there is no field for it."""
    names, ahead, seen = set(), [record_of(SnapshotContent)], set()
    while ahead:
        match ahead.pop():
            case Record() as record if record.type not in seen:
                seen.add(record.type)
                names |= {name for name, _ in record.fields}
                ahead += [inner for _, inner in record.fields]
            case OneOf(records=parts) | Fixed(inners=parts):
                ahead += parts
            case Optional(inner=inner) | Many(inner=inner) | ByName(inner=inner):
                ahead.append(inner)
    assert Shape in seen
    assert not [name for name in names if any(word in name for word in ("env", "command", "token", "secret", "uri"))]


def test_a_gang_in_a_plan_is_told_and_read_back():
    """A union is an object with the name of its class; another name is refused."""
    view = ClusterView(revision=1, observed_at_s=9.0, nodes=(node("n"),), jobs=(job("a", low=2, servers=1),))
    decided = plan(view, Policy(), 9.0)
    plain = encode(decided, Plan)
    assert plain["actions"][0]["type"] == "AdmitGang"
    assert decode(plain, Plan) == decided
    with pytest.raises(InvalidSpecError, match=r"actions\[0\].type: is \"Gang\" \(one of CreatePod"):
        decode(plain | {"actions": [{"type": "Gang"}]}, Plan)
