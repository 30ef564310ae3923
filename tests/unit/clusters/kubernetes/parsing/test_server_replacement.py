"""Servers that take the place of others, as the planner sees them."""

from dataclasses import replace

import pytest

from autoscaler.clusters.kubernetes.builders.member_pods import build_pod
from autoscaler.clusters.kubernetes.objects.labels import REPLACES
from autoscaler.clusters.kubernetes.parsing.pod_objects import PodContext, parse_pod
from autoscaler.clusters.kubernetes.parsing.server_replacement import (
    BucketOwners,
    as_replacement,
    find_replaced_pod,
    replacement_annotation,
)
from autoscaler.domain import PodPhase, Role
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, UID, as_stored, kube_job, placement

JOB = kube_job(server={})
CONTEXT = PodContext(jobs={UID: "team-a/digits"})


def server(ordinal, *, uid, **metadata):
    pod = as_stored(build_pod(JOB, placement(Role.SERVER, ordinal=ordinal), SETTINGS, is_gated=False), uid=uid)
    return pod | {"metadata": pod["metadata"] | metadata}


OLD = server(0, uid="first")
NEW = server(1, uid="second", annotations={REPLACES: replacement_annotation(OLD)})


def find(*pods):
    there = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in pods}
    return lambda namespace, name: there.get((namespace, name))


def test_it_names_the_one_whose_place_it_takes():
    assert find_replaced_pod(NEW, find(OLD, NEW)) is OLD
    assert find_replaced_pod(OLD, find(OLD, NEW)) is None


@pytest.mark.parametrize(
    "others",
    [(), (server(0, uid="later"),), (server(0, uid="first", deletionTimestamp="2026-01-02T03:04:05Z"),)],
    ids=["gone", "another under its name", "told to leave"],
)
def test_nobody_stands_whose_place_it_takes(others):
    assert find_replaced_pod(NEW, find(NEW, *others)) is None


@pytest.mark.parametrize("mark", ["", "digits-server-0", "/first", "digits-server-0/", "other/first", 7])
def test_a_mark_that_says_nothing_is_none(mark):
    """Annotations can be edited."""
    assert find_replaced_pod(server(1, uid="second", annotations={REPLACES: mark}), find(OLD)) is None


@pytest.mark.parametrize(
    ("owning", "phase", "is_settling"),
    [
        (None, PodPhase.STARTING, True),
        (BucketOwners(ordinals=frozenset({0}), is_moving=False), PodPhase.STARTING, False),
        (BucketOwners(ordinals=frozenset({0}), is_moving=True), PodPhase.STARTING, False),
        (BucketOwners(ordinals=frozenset({0, 1}), is_moving=True), PodPhase.STARTING, True),
        (BucketOwners(ordinals=frozenset({0, 1}), is_moving=False), PodPhase.READY, False),
    ],
    ids=["nobody can say", "it has nothing", "others move", "its share is on its way", "it serves"],
)
def test_it_is_ready_when_its_share_has_come(owning, phase, is_settling):
    pod = replace(parse_pod(NEW, CONTEXT), phase=PodPhase.READY, node="n1")
    seen = as_replacement(pod, OLD, owning)
    assert (seen.replaces, seen.phase, seen.is_settling) == ("team-a/digits-server-0", phase, is_settling)


@pytest.mark.parametrize("phase", [PodPhase.PENDING, PodPhase.TERMINATING])
def test_without_a_node_and_leaving_it_is_as_it_is(phase):
    pod = replace(parse_pod(NEW, CONTEXT), phase=phase)
    seen = as_replacement(pod, OLD, None)
    assert (seen.phase, seen.is_settling) == (phase, False)
