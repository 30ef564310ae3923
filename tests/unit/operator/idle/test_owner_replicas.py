"""Which idle pods of one owner can leave by a smaller scale, and in which order (ADR 0293)."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, STATEFUL_SETS
from autoscaler.clusters.kubernetes.parsing.object_trimming import trim_consent
from autoscaler.domain import IdlePod
from autoscaler.operator.idle.owner_replicas import OwnerReplicas, in_leaving_order, loses_volumes, replicas_of


def replica(ordinal, *, count=4, minimum=0, since_s=0.0, after_s=60.0, is_ordered=True):
    wanted = OwnerReplicas(owner_uid="u", count=count, minimum=minimum, ordinal=ordinal if is_ordered else None)
    return IdlePod(pod=f"nb/web-{ordinal}", since_s=since_s, after_s=after_s), wanted


def order(*found):
    """By ordinal: `True` for one that may leave first, the ordinal after which it leaves, or None: it stays."""
    told = {}
    for one in in_leaving_order(found):
        after = True if one.goes_after is None else int(one.goes_after.removeprefix("nb/web-"))
        told[int(one.pod.removeprefix("nb/web-"))] = None if one.after_s is None else after
    return told


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([replica(3)], {3: True}),
        ([replica(3), replica(2), replica(1)], {3: True, 2: 3, 1: 2}),
        ([replica(2), replica(1)], {2: None, 1: None}),  # 3 works
        ([replica(3), replica(1)], {3: True, 1: None}),  # 2 works
        ([replica(3, after_s=None), replica(2)], {3: None, 2: None}),  # the owner of the highest did not agree
        ([replica(n, minimum=2) for n in range(4)], {3: True, 2: 3, 1: None, 0: None}),
        ([replica(n, minimum=n) for n in range(4)], {3: True, 2: None, 1: None, 0: None}),  # the most of them
        ([replica(4), replica(3)], {4: None, 3: True}),  # beyond the count: its owner takes it anyway
        ([replica(-1), replica(3)], {-1: None, 3: True}),
        ([replica(n, count=2**31 - 1) for n in (0, 2**31 - 2)], {0: None, 2**31 - 2: True}),
    ],
)
def test_of_a_stateful_set_the_highest_leave_in_a_row(found, expected):
    """Its controller deletes the highest ordinal, whatever that does."""
    assert order(*found) == order(*reversed(found)) == expected


def test_of_a_deployment_any_may_leave_those_that_are_due_first():
    """As many as it can spare; one that somebody keeps takes nobody's turn."""
    found = [replica(n, minimum=2, since_s=100.0 - n, is_ordered=False) for n in range(4)]
    kept = replica(9, minimum=2, since_s=0.0, is_ordered=False)
    assert order(*found) == {3: True, 2: True, 1: None, 0: None}
    assert order(*found, (replace(kept[0], kept_until_s=1e9), kept[1])) == order(*found) | {9: None}


def test_pods_without_owner_and_other_owners_are_not_counted():
    """Each owner by itself."""
    mine, others = replica(3, count=1, minimum=0, is_ordered=False), replica(2, count=1, is_ordered=False)
    others = (others[0], replace(others[1], owner_uid="v"))
    assert order(mine, others, (replica(1)[0], None)) == {3: True, 2: True, 1: True}


def owner(spec, name="web"):
    return {"metadata": {"name": name, "uid": "u"}, "spec": spec}


def pod(name):
    return {"metadata": {"name": name}}


@pytest.mark.parametrize(
    ("spec", "name", "ordinal"),
    [
        ({"replicas": 3}, "web-2", 2),
        ({"replicas": 3, "ordinals": {"start": 5}}, "web-7", 2),
        ({"replicas": 3, "ordinals": {"start": 5}}, "web-2", -3),
        ({}, "notebook", 0),  # one by default
    ],
)
def test_a_pods_place_is_in_its_name(spec, name, ordinal):
    """As the watch keeps the object, too."""
    for seen in (owner(spec), trim_consent(owner(spec))):
        assert replicas_of(STATEFUL_SETS, seen, pod(name), 0).ordinal == ordinal


@pytest.mark.parametrize(
    ("kind", "spec", "name", "minimum", "word"),
    [
        (STATEFUL_SETS, {"replicas": 3}, "web", 0, "no number"),
        (STATEFUL_SETS, {"replicas": 3}, "web-x", 0, "no number"),
        (STATEFUL_SETS, {"replicas": 3}, "other-1", 0, "no number"),
        (STATEFUL_SETS, {"replicas": 3}, "web-\u0663", 0, "no number"),
        (STATEFUL_SETS, {"replicas": 3}, "web-" + "9" * 99, 0, "no number"),
        (STATEFUL_SETS, {"replicas": 3}, "web-1", 3, "3 keeps its StatefulSet, which has 3 replicas"),
        (DEPLOYMENTS, {"replicas": 1}, "web-1", 1, "1 keeps its Deployment, which has 1 replica"),
        (DEPLOYMENTS, {"replicas": "many"}, "web-1", 1, "1 keeps its Deployment"),
    ],
)
def test_an_owner_that_keeps_all_and_a_pod_without_a_number_are_told(kind, spec, name, minimum, word):
    with pytest.raises(ValueError, match=word):
        replicas_of(kind, owner(spec), pod(name), minimum)


def test_a_set_that_deletes_volumes_when_it_is_scaled_is_known_from_the_watch():
    """Files are not GPUs."""
    policy = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}
    assert loses_volumes(trim_consent(owner({"replicas": 3} | policy)))
    assert not loses_volumes(trim_consent(owner({"replicas": 3})))
