"""Consent to unused GPUs being given back, out of annotations: the nearest counts, and doubt is none (ADR 0260)."""

from math import inf

import pytest

from autoscaler.clusters.kubernetes.parsing.object_trimming import trim_consent, trim_pod, trim_workload
from autoscaler.domain.idleness import StayReason
from autoscaler.operator.idle.consent import Consent, namespace_problem, owner_of, read_consent, scaler_of, selects
from autoscaler.operator.idle.owner_replicas import OwnerReplicas

RECLAIM, MINIMUM, KEEP = "edl.dev/idle-reclaim", "edl.dev/idle-min-replicas", "edl.dev/keep-until"
SET = {"controller": True, "kind": "StatefulSet", "name": "notebook", "uid": "u", "apiVersion": "apps/v1"}

SET_OF_REPLICAS = SET | {"kind": "ReplicaSet", "name": "notebook-5d9"}


def pod(*, owner=None, **annotations):
    refs = {} if owner is None else {"ownerReferences": [owner]}
    return named("Pod", **annotations) | {"metadata": named("Pod", **annotations)["metadata"] | refs}


def named(kind, **annotations):
    names = {"reclaim": RECLAIM, "minimum": MINIMUM, "keep": KEEP}
    found = {names[name]: value for name, value in annotations.items()}
    return {
        "kind": kind,
        "metadata": {"name": "x", "namespace": "nb", "uid": "u", "resourceVersion": "1", "annotations": found},
    }


@pytest.mark.parametrize(
    ("own", "owner", "namespace", "after_s"),
    [
        ({}, {}, {}, None),
        ({"reclaim": "30m"}, {}, {}, 1800.0),
        ({}, {}, {"reclaim": "30m"}, 1800.0),
        ({"reclaim": "1h"}, {}, {"reclaim": "30m"}, 3600.0),
        ({"reclaim": "off"}, {}, {"reclaim": "30m"}, None),
        ({"reclaim": " OFF "}, {}, {"reclaim": "30m"}, None),
        ({}, {"reclaim": "off"}, {"reclaim": "30m"}, None),
        ({}, {"reclaim": "2h"}, {"reclaim": "30m"}, 7200.0),
        ({"reclaim": "1h"}, {"reclaim": "off"}, {}, 3600.0),  # the pod's own is nearer than its owner's
        ({"reclaim": "sometimes"}, {}, {"reclaim": "30m"}, None),  # it may have meant off
        ({}, {"reclaim": "sometimes"}, {"reclaim": "30m"}, None),
        ({}, {}, {"reclaim": "sometimes"}, None),
        ({"reclaim": "1h"}, {}, {"reclaim": "sometimes"}, 3600.0),
    ],
)
def test_the_nearest_of_pod_owner_and_namespace_counts(own, owner, namespace, after_s):
    """A value of its own wins, `off` and nonsense included."""
    found = pod(owner=SET, **own)
    consent = read_consent(found, named("StatefulSet", minimum="0", **owner), named("Namespace", **namespace))
    assert consent.after_s == after_s
    assert bool(consent.problem) == ("sometimes" in (own.get("reclaim"), owner.get("reclaim")))


@pytest.mark.parametrize(
    ("minimum", "word"),
    [
        ("0", ""),
        (" 0 ", ""),
        *((nonsense, "is no number") for nonsense in ("-1", "1.5", "", "\u0663", "9" * 30)),
    ],
)
def test_only_a_minimum_of_none_lets_an_owner_be_scaled(minimum, word):
    """An owner of one replica that declares more stays; nonsense is no consent, and is told."""
    consent = read_consent(pod(owner=SET, reclaim="30m", minimum=minimum), named("StatefulSet"), None)
    replicas = OwnerReplicas(owner_uid="u", count=1, minimum=0, ordinal=0)
    assert (consent.after_s, consent.replicas) == ((None, None) if word else (1800.0, replicas))
    assert word in consent.problem
    assert bool(consent.problem) == bool(word)


@pytest.mark.parametrize("minimum", ["1", " 3 "])
def test_an_owner_at_its_minimum_agreed_and_has_no_problem(minimum):
    """It stays, whatever its namespace says; a keep is remembered beside that."""
    consent = read_consent(pod(owner=SET, reclaim="30m", minimum=minimum), named("StatefulSet"), None)
    assert consent == Consent(stays=StayReason.MINIMUM)


@pytest.mark.parametrize(
    ("ref", "owner", "word"),
    [
        (SET, None, "cannot be read"),
        (SET | {"kind": "Job"}, None, "would create the pod again"),
        (SET | {"kind": "ReplicaSet"}, None, "would create the pod again"),  # of no Deployment
        (SET | {"kind": "\u202eJob" + "x" * 500}, None, "would create the pod again"),
        (SET, {"ownerReferences": [SET | {"kind": "Notebook", "name": "alice"}]}, "scaled by Notebook alice"),
    ],
)
def test_a_pod_that_would_come_back_has_no_consent(ref, owner, word):
    """What creates it again is not scaled by EDL, or would be scaled again by somebody else."""
    above = None if owner is None else {"metadata": named("StatefulSet")["metadata"] | owner}
    consent = read_consent(pod(owner=ref, reclaim="30m", minimum="0"), above, None)
    assert consent.after_s is None
    assert word in consent.problem


def made(raw, at, **labels):
    raw["metadata"] |= {"creationTimestamp": at, "labels": labels}
    return raw


@pytest.mark.parametrize(
    ("ref", "owner", "is_its"),
    [
        (SET, named("StatefulSet"), True),
        (SET | {"uid": "of one that is gone"}, named("StatefulSet"), False),
        (SET_OF_REPLICAS, made(named("Deployment"), "2026-01-01T00:00:00Z"), True),
        (SET_OF_REPLICAS, made(named("Deployment"), "2026-01-01T00:00:02Z"), False),  # its ReplicaSet was orphaned
    ],
)
def test_an_owner_that_only_has_the_name_gave_no_consent(ref, owner, is_its):
    """A StatefulSet is known by its UID; a Deployment that is younger than the pod did not make it."""
    found = made(pod(owner=ref, reclaim="30m", minimum="0"), "2026-01-01T00:00:01Z", **{"pod-template-hash": "5d9"})
    consent = read_consent(found, owner, None)
    assert (consent.after_s == 1800.0) is is_its
    assert ("is not the one that made it" in consent.problem) is not is_its


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ({"matchLabels": {"app": "x"}}, True),
        ({"matchLabels": {"app": "x", "tier": "web"}}, False),
        ({"matchLabels": {"app": "y"}}, False),
        ({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_deployment_selects_by_all_of_its_labels(selector, is_selected):
    """Expressions are not evaluated: doubt keeps the pod."""
    found = made(pod(), "2026-01-01T00:00:00Z", app="x")
    assert selects(named("Deployment") | {"spec": {"selector": selector}}, found) is is_selected


@pytest.mark.parametrize(
    ("target", "scaler"),
    [
        ({"kind": "StatefulSet", "name": "notebook", "apiVersion": "apps/v1"}, "hpa"),
        ({"kind": "StatefulSet", "name": "notebook"}, "hpa"),
        ({"kind": "StatefulSet", "name": "other", "apiVersion": "apps/v1"}, ""),
        ({"kind": "Deployment", "name": "notebook", "apiVersion": "apps/v1"}, ""),
        (None, ""),
    ],
)
def test_an_owner_that_an_autoscaler_scales_is_not_scaled(target, scaler):
    """A HorizontalPodAutoscaler stops at 0 replicas: nobody would bring the service back (A10)."""
    found = pod(owner=SET, reclaim="30m", minimum="0")
    scalers = [{"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}}]
    assert scaler_of(owner_of(found), scalers) == scaler
    consent = read_consent(found, named("StatefulSet"), None, scaler=scaler)
    assert (consent.after_s is None) is bool(scaler)
    assert ("are scaled by HorizontalPodAutoscaler hpa" in consent.problem) is bool(scaler)


def test_the_default_of_a_namespace_tells_nothing_at_pods_it_does_not_fit():
    """A Job's pods in a namespace that opted in: nobody asked for them, so nobody is told."""
    found = read_consent(pod(owner=SET | {"kind": "Job"}), None, named("Namespace", reclaim="30m", minimum="0"))
    assert (found.after_s, found.problem) == (None, "")


@pytest.mark.parametrize(
    "kept",
    [
        "tomorrow",
        "",
        "1e999",
        "2030-01-31T12:00:00",
        "2030-13-01T00:00:00Z",
        "\u0662030-01-31T12:00:00Z",
        "9" * 400,
        "2030-01-31T12:00:00Z" + " " * 60 + "x",
        "2030-01-31T12:00:00.000000+00:00" + "0" * 40,
    ],
)
def test_a_time_that_is_not_understood_keeps_the_pod(kept):
    """Somebody wanted to keep it; a value is never cut to one that is understood."""
    consent = read_consent(pod(reclaim="30m", keep=kept), None, None)
    assert consent.after_s is None
    assert "the pod is kept" in consent.problem
    assert consent.problem.isprintable()
    assert len(consent.problem) < 300


@pytest.mark.parametrize("kept", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1970-01-01T00:00:00Z"])
def test_times_at_the_ends_of_the_calendar_are_read(kept):
    """A past one keeps nothing, the last one for ever."""
    consent = read_consent(pod(reclaim="30m", keep=kept), None, None)
    assert consent.holds_at(1.8e9, idle_since_unix_s=0.0) == (not kept.startswith("9999"))


@pytest.mark.parametrize(
    "reclaim",
    [
        "30m" + " " * 60 + "x",
        "1h\x00",
        "\u0663\u0660m",
        "-30m",
        "1e9h",
        "inf",
        "nan",
        "30 m",
        "30m30m" * 60,
        "0",
        "59s",
        "721h",
        "9" * 4000 + "s",
        5,
        ["30m"],
        {"a": "30m"},
    ],
)
def test_no_nonsense_is_taken_for_a_duration(reclaim):
    """Also what no API server stores; told in printable text of a bounded length."""
    found = pod(reclaim=reclaim)
    consent = read_consent(found, None, None)
    problem = namespace_problem(named("Namespace", reclaim=reclaim))
    assert consent.after_s is None
    assert consent.problem == problem
    assert problem.isprintable()
    assert 0 < len(problem) < 300


def test_what_is_kept_of_an_object_says_the_same():
    """Trimmed objects, one too long to be kept whole among them, read as the whole ones do."""
    long = {"labels": {"x": "y" * 40_000}}
    for extra in ({}, long):
        owner = named("StatefulSet", reclaim="off")
        owner["metadata"] |= extra | {"ownerReferences": [SET]}
        kept = trim_consent(owner)
        assert kept["metadata"]["annotations"] == {RECLAIM: "off"}
        assert kept["metadata"]["ownerReferences"] == [SET]
        assert "labels" not in kept["metadata"]
    huge = pod(reclaim="off") | {"spec": {"nodeSelector": {"x": "y" * 90_000}}}
    assert read_consent(trim_pod(huge), None, named("Namespace", reclaim="30m")).after_s is None
    deployment = named("Deployment", reclaim="off") | {"spec": {"template": {"spec": {}}}}
    assert trim_workload(deployment)["metadata"]["annotations"] == {RECLAIM: "off"}
    endless = trim_consent(named("Namespace", reclaim="30m" + " " * 100_000))
    assert len(endless["metadata"]["annotations"][RECLAIM]) < 100
    assert read_consent(pod(), None, endless).after_s is None


def test_without_any_word_there_is_no_consent():
    """And nobody keeps anything."""
    consent = read_consent({"metadata": {"annotations": "none"}}, None, {"metadata": None})
    assert (consent.after_s, consent.kept_until_unix_s, consent.problem) == (None, -inf, "")
