"""ResourceQuotas as the API server has them: what they limit, which pods of EDL's they count."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.parsing.resource_quotas import parse_quota, traits_of
from autoscaler.domain import QuotaLimit, Reclaim, Role, Trait
from tests.unit.planner.setups import job

ALL_GRADES = frozenset(range(1, 9))
SURPLUS = tuple(f"edl-surplus-{grade}" for grade in range(1, 9))


def quota(hard, used=None, **spec):
    status = {} if used is None else {"used": used}
    return {"metadata": {"namespace": "team-a", "name": "q"}, "spec": {"hard": hard, **spec}, "status": status}


def test_quota_speaks_of_requests_by_the_domains_names():
    """cpu is requests.cpu; limits, objects and storage are no matter of rooms."""
    hard = {"cpu": "10", "requests.memory": "2Gi", "requests.nvidia.com/gpu": "4", "pods": "5", "limits.cpu": "20"}
    hard |= {"count/deployments.apps": "3", "requests.storage": "1Ti", "count/pods": "9", "services": "2"}
    hard |= {"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}
    used = {"cpu": "2500m", "requests.memory": "1Gi", "requests.nvidia.com/gpu": "1", "pods": "2", "count/pods": "3"}
    found = parse_quota(quota(hard, used), Reclaim.SCHEDULER)
    assert sorted(found.limits, key=str) == sorted(
        [
            QuotaLimit(resource="cpu", hard=10_000, used=2_500),
            QuotaLimit(resource="memory", hard=2 << 30, used=1 << 30),
            QuotaLimit(resource="gpu", hard=4, used=1),
            QuotaLimit(resource="pods", hard=5, used=2),
            QuotaLimit(resource="pods", hard=9, used=3),
        ],
        key=str,
    )


def test_quota_that_is_not_counted_yet_leaves_nothing():
    """The API server refuses pods until it has counted."""
    assert parse_quota(quota({"cpu": "10"}), Reclaim.SCHEDULER).limits == (
        QuotaLimit(resource="cpu", hard=10_000, used=10_000),
    )


def selector(operator, *values, scope="PriorityClass"):
    return {"scopeName": scope, "operator": operator, "values": list(values)}


def scoped(*lines, scopes=(), reclaim=Reclaim.SCHEDULER):
    spec = {"scopeSelector": {"matchExpressions": list(lines)}} if lines else {}
    spec |= {"scopes": list(scopes)} if scopes else {}
    return parse_quota(quota({"cpu": "1"}, {"cpu": "0"}, **spec), reclaim)


def counted(found, core_class="edl-core"):
    """Whether the quota counts the core pods of a job of this class, and which grades of surplus."""
    if found is None:
        return False, frozenset()
    one = job("j", priority_class=core_class)
    grades = frozenset(grade for grade in ALL_GRADES if found.counts(one, Role.TRAINER, grade))
    return found.counts(one, Role.TRAINER, 0), grades


@pytest.mark.parametrize(
    ("lines", "core", "grades"),
    [
        ([selector("In", "edl-core")], True, ()),
        ([selector("In", "edl-core", "edl-surplus-8", "web")], True, {8}),
        ([selector("In", "web")], False, ()),
        ([selector("In", *SURPLUS)], False, ALL_GRADES),
        ([selector("In", "edl-surplus")], False, ()),  # `reclaim: planner` gives that one
        ([selector("NotIn", "edl-core")], False, ALL_GRADES),
        ([selector("NotIn", "edl-surplus-1", "edl-surplus-2")], True, ALL_GRADES - {1, 2}),
        ([selector("NotIn", "web")], True, ALL_GRADES),
        ([selector("Exists")], True, ALL_GRADES),
        ([selector("DoesNotExist")], False, ()),
        ([selector("In", "edl-core", "edl-surplus-1"), selector("NotIn", "edl-core")], False, {1}),
        ([selector("In", "a", "edl-core"), selector("In", "b", "edl-core")], True, ()),
    ],
)
def test_classes_say_which_pods_a_quota_counts(lines, core, grades):
    assert counted(scoped(*lines)) == (core, frozenset(grades))


def test_core_has_the_class_of_its_job():
    assert counted(scoped(selector("In", "research")), "research") == (True, frozenset())
    assert counted(scoped(selector("NotIn", "research")), "research") == (False, ALL_GRADES)


@pytest.mark.parametrize(("name", "grades"), [("edl-surplus", ALL_GRADES), ("edl-surplus-3", frozenset())])
def test_one_class_for_all_surplus_where_the_planner_reclaims(name, grades):
    assert counted(scoped(selector("In", name), reclaim=Reclaim.PLANNER)) == (False, grades)


def test_a_quota_without_scopes_counts_everything():
    assert scoped().counts_all
    assert scoped(selector("Exists")).counts_all
    assert scoped(scopes=["PriorityClass"]).counts_all
    assert not scoped(scopes=["NotTerminating"]).counts_all


@pytest.mark.parametrize("is_plain", [True, False])
@pytest.mark.parametrize(
    ("scope", "traits", "counts"),
    [
        ("BestEffort", (), False),
        ("BestEffort", {Trait.BEST_EFFORT}, True),
        ("NotBestEffort", (), True),
        ("NotBestEffort", {Trait.BEST_EFFORT}, False),
        ("Terminating", (), False),
        ("Terminating", {Trait.TERMINATING}, True),
        ("NotTerminating", {Trait.BEST_EFFORT}, True),
        ("NotTerminating", {Trait.TERMINATING}, False),
        ("CrossNamespacePodAffinity", (), False),
        ("CrossNamespacePodAffinity", {Trait.CROSS_NAMESPACE}, True),
    ],
)
def test_other_scopes_ask_for_what_the_template_says(scope, traits, counts, is_plain):
    found = scoped(scopes=[scope]) if is_plain else scoped(selector("Exists", scope=scope))
    one = job("j")
    one = replace(one, trainer=replace(one.trainer, traits=frozenset(traits)))
    assert found.counts(one, Role.TRAINER, 0) is counts
    assert found.counts(one, Role.TRAINER, 4) is counts
    assert found.counts(one, Role.MASTER, 0) is (scope in {"NotBestEffort", "NotTerminating"})


def test_scopes_of_claims_count_no_pod():
    assert scoped(scopes=["VolumeAttributesClass"]) is None


def affinity(kind, when, term):
    key = f"{when}DuringSchedulingIgnoredDuringExecution"
    return {"affinity": {kind: {key: [term if when == "required" else {"weight": 1, "podAffinityTerm": term}]}}}


ASKS = {"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": "10m"}}}]}
TERM = {"topologyKey": "zone"}


@pytest.mark.parametrize(
    ("spec", "traits"),
    [
        (ASKS, ()),
        ({"containers": [{"name": "a", "resources": {"limits": {"memory": "1Gi"}}}]}, ()),
        ({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": 1}}}, ()),
        ({"containers": [{"name": "a"}], "initContainers": ASKS["containers"]}, ()),
        ({"containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}, {Trait.BEST_EFFORT}),
        ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "0"}}}]}, {Trait.BEST_EFFORT}),
        (ASKS | {"activeDeadlineSeconds": 60}, {Trait.TERMINATING}),
        (ASKS | affinity("podAffinity", "required", TERM), ()),
        (ASKS | affinity("podAffinity", "required", TERM | {"namespaces": ["x"]}), {Trait.CROSS_NAMESPACE}),
        (ASKS | affinity("podAntiAffinity", "preferred", TERM | {"namespaceSelector": {}}), {Trait.CROSS_NAMESPACE}),
    ],
)
def test_traits_are_what_admission_finds(spec, traits):
    assert traits_of(spec) == frozenset(traits)
