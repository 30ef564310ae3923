"""What an operator is told: each wrong value is refused with its path, nothing unknown is passed over."""

import json
from dataclasses import fields
from math import inf, nan

import pytest

from autoscaler.domain import Fairness, Headroom, Policy, Reclaim, ReclaimMode, Resources, Shape
from autoscaler.errors import InvalidSpecError
from autoscaler.operator.process.operator_settings import read_settings
from autoscaler.operator.process.policy_file import parse_policy, policy_config_map, public_name, read_policy

ENVIRONMENT = {"EDL_IMAGE": "edl:1", "EDL_ETCD_ENDPOINTS": "http://etcd:2379", "EDL_NAME": "edl-0"}


def settings(**options):
    environ = options.pop("environ", ENVIRONMENT)
    return read_settings(**({"listen": "0.0.0.0:8080", "lease": "edl/edl"} | options), environ=environ)


def test_what_is_not_said_is_as_on_kubernetes():
    assert parse_policy({}) == Policy(reclaim=Reclaim.SCHEDULER)


def test_each_field_can_be_said_by_its_public_name():
    names = {public_name(field.name) for field in fields(Policy)}
    assert {"upWindowSeconds", "freeze", "reclaim", "headroomPercent", "transfersPerMinute"} <= names
    assert len(names) == len(fields(Policy))


def test_what_is_said_holds():
    policy = parse_policy(
        {
            "reclaim": "planner",
            "fairness": "Namespace",
            "freeze": True,
            "upWindowSeconds": 5,
            "transfersPerMinute": 2,
            "headroom": [{"cpu": "500m", "memory": "1Gi", "gpu": 1, "count": 3}],
        }
    )
    assert (policy.reclaim, policy.fairness, policy.is_frozen) == (Reclaim.PLANNER, Fairness.NAMESPACE, True)
    assert (policy.up_window_s, policy.transfers_per_minute) == (5.0, 2)
    [room] = policy.headroom
    assert (room.count, room.shape.requests.cpu_milli, room.shape.requests.gpu_count) == (3, 500, 1)


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"upWindow": 3}, "policy.upWindow"),
        ({"up_window_s": 3}, "policy.up_window_s"),
        ({"upWindowSeconds": -1}, "policy.upWindowSeconds"),
        ({"upWindowSeconds": "3"}, "policy.upWindowSeconds"),
        ({"upWindowSeconds": True}, "policy.upWindowSeconds"),
        ({"upWindowSeconds": float("nan")}, "policy.upWindowSeconds"),
        ({"upWindowSeconds": float("inf")}, "policy.upWindowSeconds"),
        ({"upWindowSeconds": 1e12}, "policy.upWindowSeconds"),
        ({"upWindowSeconds": 10**400}, "policy.upWindowSeconds"),
        ({"transfersPerMinute": -(10**400)}, "policy.transfersPerMinute"),
        ({"staleLimitSeconds": 0}, "policy.staleLimitSeconds"),
        ({"transfersPerMinute": 1.5}, "policy.transfersPerMinute"),
        ({"transfersPerMinute": 2**31}, "policy.transfersPerMinute"),
        ({"headroomPercent": 101}, "policy.headroomPercent"),
        ({"freeze": "yes"}, "policy.freeze"),
        ({"idleReclaim": "act", "idleNoticeSeconds": 0}, "policy.idleNoticeSeconds"),
        ({"idleReclaim": "act", "idleNoticeSeconds": 59}, "policy.idleNoticeSeconds"),
        ({"reclaim": "Scheduler"}, "policy.reclaim"),
        ({"reclaim": None}, "policy.reclaim"),
        ({"reclaim": ["planner"]}, "policy.reclaim"),
        ({"reclaim": False}, "policy.reclaim"),
        ({"idleReclaim": True}, "policy.idleReclaim"),
        ({None: 3}, "policy.None"),
        ({"headroom": {"cpu": 1}}, "policy.headroom"),
        ({"headroom": [3]}, "policy.headroom[0]"),
        ({"headroom": [{"cpu": "1"}]}, "policy.headroom[0].count"),
        ({"headroom": [{"cpu": "1", "count": 0}]}, "policy.headroom[0].count"),
        ({"headroom": [{"cpu": "one", "count": 1}]}, "policy.headroom[0].cpu"),
        ({"headroom": [{"cpu": "0", "count": 1}]}, "policy.headroom[0]"),
        ({"headroom": [{"disk": "1", "count": 1}]}, "policy.headroom[0].disk"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(content, path):
    with pytest.raises(InvalidSpecError) as refusal:
        parse_policy(content)
    assert refusal.value.path == path


NUMBERS = [field.name for field in fields(Policy) if isinstance(field.default, int | float) and field.type != "bool"]
NO_NUMBERS = [nan, inf, -inf, -1, 1e300, 10**400, -(10**400), True, "3", "three", None, [3], {"a": 1}]


@pytest.mark.parametrize("field", NUMBERS)
def test_what_cannot_be_a_number_of_a_policy_is_refused_with_its_path(field):
    """Every number that a policy has, found in the policy itself."""
    for value in [*NO_NUMBERS, *([2.5] if isinstance(getattr(Policy(), field), int) else [])]:
        with pytest.raises(InvalidSpecError) as refusal:
            parse_policy({public_name(field): value})
        assert refusal.value.path == f"policy.{public_name(field)}"
        assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("amount", ["cpu", "memory", "gpu", "count"])
def test_what_cannot_be_an_amount_of_headroom_is_refused_with_its_path(amount):
    for value in [*NO_NUMBERS[:-6], "three", None, [3], {"a": 1}]:
        with pytest.raises(InvalidSpecError) as refusal:
            parse_policy({"headroom": [{"cpu": 1, "count": 1, amount: value}]})
        assert refusal.value.path == f"policy.headroom[0].{amount}"
        assert len(str(refusal.value)) < 300


def test_a_notice_leaves_time_where_gpus_are_given_back():
    """Where it is only told what would be, any notice is one."""
    assert parse_policy({"idleReclaim": "act", "idleNoticeSeconds": 60}).idle_notice_s == 60.0
    assert parse_policy({"idleReclaim": "observe", "idleNoticeSeconds": 0}).idle_notice_s == 0.0


def test_a_policy_that_is_written_is_read_again():
    """In a ConfigMap as the chart's, where commands of users look for it."""
    requests = Resources(cpu_milli=500, memory_bytes=1 << 30, gpu_count=1, extended=(("pods", 1),))
    headroom = Headroom(shape=Shape(requests=requests), count=3)
    for policy in (Policy(), Policy(reclaim=Reclaim.SCHEDULER, up_window_s=5.5, is_frozen=True, headroom=(headroom,))):
        written = policy_config_map(policy, namespace="default")
        assert parse_policy(json.loads(written["data"]["policy.yaml"])) == policy
        assert written["metadata"]["labels"] == {"app.kubernetes.io/part-of": "edl"}


def test_off_without_quotes_is_off(tmp_path):
    """YAML reads it as false."""
    file = tmp_path / "policy.yaml"
    file.write_text("idleReclaim: off\n")
    assert read_policy(file).idle_reclaim is ReclaimMode.OFF


def test_an_empty_file_says_nothing(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text("")
    assert read_policy(file) == parse_policy({})


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "freeze: true\nfreeze: false\n", "a: 1\n---\nb: 2\n"])
def test_a_file_of_another_shape_is_refused(tmp_path, text):
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSpecError, match=r"policy\.yaml"):
        read_policy(file)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidSpecError, match="cannot be read"):
        read_policy(tmp_path / "none.yaml")


def test_the_options_become_settings(tmp_path):
    (tmp_path / "ca").write_text("CA")
    (tmp_path / "password").write_text("secret\n")
    files = {"EDL_ETCD_CA_FILE": str(tmp_path / "ca"), "EDL_ETCD_PASSWORD_FILE": str(tmp_path / "password")}
    etcd = {"EDL_ETCD_USER": "root", "EDL_ETCD_ENDPOINTS": "https://etcd:2379"}
    read = settings(namespaces="team-a, team-b,team-a", environ=ENVIRONMENT | files | etcd)
    assert (read.lease_namespace, read.lease_name, read.term.identity) == ("edl", "edl", "edl-0")
    assert (read.listen.host, read.listen.port, read.term.namespaces) == ("0.0.0.0", 8080, ("team-a", "team-b"))
    assert (read.term.build.etcd.ca, read.term.build.etcd.user) == ("CA", "root")
    assert "secret" not in repr(read)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"lease": "edl"}, "--lease"),
        ({"lease": "a/b/c"}, "--lease"),
        ({"lease": "/edl"}, "--lease"),
        ({"listen": "8080"}, "--listen"),
        ({"listen": "0.0.0.0:99999"}, "--listen"),
        ({"namespaces": "a,,b"}, "--namespaces"),
        ({"log_level": "loud"}, "--log-level"),
        ({"environ": {}}, "EDL_IMAGE"),
        ({"environ": ENVIRONMENT | {"EDL_ELASTIC_SERVERS": "yes"}}, "EDL_ELASTIC_SERVERS"),
        ({"environ": ENVIRONMENT | {"EDL_MOVE_SERVERS": "1"}}, "EDL_MOVE_SERVERS"),
        ({"environ": ENVIRONMENT | {"EDL_MOVE_SERVERS": "true"}}, "EDL_MOVE_SERVERS"),
        ({"environ": ENVIRONMENT | {"EDL_ETCD_CA_FILE": "/nowhere"}}, "EDL_ETCD_CA_FILE"),
        ({"environ": ENVIRONMENT | {"EDL_ETCD_USER": "root"}}, "EDL_ETCD_USER"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(options, path):
    with pytest.raises(InvalidSpecError) as refusal:
        settings(**options)
    assert refusal.value.path == path
