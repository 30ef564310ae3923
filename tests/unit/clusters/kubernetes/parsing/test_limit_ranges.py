"""What LimitRanges make of pods that are yet to come; how the real server sees it is held by tests/cluster."""

import pytest

from autoscaler.clusters.kubernetes.parsing.limit_ranges import NO_LIMITS, parse_limit_ranges
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request


def limit_range(*lines, name="range", namespace="team-a"):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": list(lines)}}


def limits_of(*lines):
    return parse_limit_ranges([limit_range(*lines)])["team-a"]


def spec(requests=None, limits=None, **more):
    return {"containers": [{"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}}], **more}


def of_container(**fields):
    return {"type": "Container", **fields}


def test_what_is_left_open_is_filled_in_and_what_is_said_stays():
    limits = limits_of(
        of_container(default={"cpu": "2", "memory": "2Gi"}, defaultRequest={"cpu": "1", "memory": "1Gi"})
    )
    assert pod_request(limits.fill(spec())).cpu_milli == 1_000
    assert pod_request(limits.fill(spec({"cpu": "300m"}))).cpu_milli == 300
    assert pod_request(limits.fill(spec(limits={"cpu": "4"}))).cpu_milli == 4_000
    assert pod_request(limits.fill(spec({"cpu": "300m"}))).memory_bytes == 1 << 30


def test_a_pods_own_limits_are_requests_where_its_containers_ask_for_nothing():
    """As the server settles them before any LimitRange is looked at."""
    limits = limits_of(of_container(defaultRequest={"cpu": "1"}))
    own = {"limits": {"cpu": "4", "memory": "8Gi"}}
    filled = limits.fill(spec({"cpu": "300m"}, resources=own))
    assert filled["resources"] == {**own, "requests": {"cpu": "300m", "memory": "8Gi"}}
    assert "resources" not in limits.fill(spec({"cpu": "300m"}))


def test_init_containers_are_filled_in_too():
    limits = limits_of(of_container(defaultRequest={"memory": "3Gi"}))
    filled = limits.fill(spec({"memory": "1Gi"}, initContainers=[{"name": "fetch"}]))
    assert pod_request(filled).memory_bytes == 3 << 30


def test_a_spec_is_not_touched_where_nothing_is_filled_in():
    said = spec({"cpu": "1"})
    assert limits_of(of_container(max={"cpu": "2"})).fill(said) is said
    assert NO_LIMITS.fill(said) is said


@pytest.mark.parametrize(
    ("line", "asked", "told"),
    [
        (of_container(max={"cpu": "1"}), spec({"cpu": "2"}, {"cpu": "2"}), "cpu is above the maximum, 1"),
        (of_container(max={"cpu": "1"}), spec({"cpu": "1"}), "has no limits.cpu; the maximum is 1"),
        (of_container(min={"memory": "1Gi"}), spec({"memory": "1Mi"}), "requests.memory is below the minimum, 1Gi"),
        (of_container(min={"memory": "1Gi"}), spec(), "requests no memory"),
        (of_container(maxLimitRequestRatio={"cpu": "2"}), spec({"cpu": "1"}, {"cpu": "3"}), "more than 2 times"),
        (of_container(default={"cpu": "1"}), spec({"cpu": "2"}), "is above limits.cpu, which a LimitRange fills in"),
        (
            {"type": "Pod", "max": {"memory": "1Gi"}},
            spec({"memory": "2Gi"}, {"memory": "2Gi"}),
            "above the maximum, 1Gi",
        ),
    ],
)
def test_what_will_be_refused_is_told_with_its_field(line, asked, told):
    refusal = limits_of(line).find_problem(asked, "spec.trainer.template.spec")
    assert refusal.startswith("spec.trainer.template.spec")
    assert told in refusal


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (of_container(max={"cpu": "2"}, min={"cpu": "1"}), spec({"cpu": "1"}, {"cpu": "2"})),
        (of_container(max={"cpu": "2"}, default={"cpu": "2"}), spec({"cpu": "1"})),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, spec()),
    ],
)
def test_what_is_within_the_bounds_is_not_refused(line, asked):
    assert limits_of(line).find_problem(asked, "spec") == ""


def test_each_namespace_has_its_own_and_the_first_by_name_fills_in():
    first = limit_range(of_container(defaultRequest={"cpu": "1"}), name="a")
    second = limit_range(of_container(defaultRequest={"cpu": "2", "memory": "1Gi"}), name="b")
    other = limit_range(of_container(defaultRequest={"cpu": "3"}), namespace="team-b")
    found = parse_limit_ranges([second, other, first])
    asked = pod_request(found["team-a"].fill(spec()))
    assert (asked.cpu_milli, asked.memory_bytes) == (1_000, 1 << 30)
    assert pod_request(found["team-b"].fill(spec())).cpu_milli == 3_000
