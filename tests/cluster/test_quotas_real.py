"""Quotas over some classes of pods on a real API server: what is read is what admission counts, and EDL asks within."""

import asyncio
import time
from dataclasses import replace

import pytest
import pytest_asyncio
from kubernetes import client

from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import PODS, RESOURCE_QUOTAS
from autoscaler.clusters.kubernetes.parsing.resource_quotas import parse_quota, traits_of
from autoscaler.domain import Bottleneck, Policy, Reclaim, Role
from tests.cluster.autoscaling import Autoscaling, trainers
from tests.cluster.kwok_nodes import NodeShape
from tests.cluster.trainingjobs import GROUP
from tests.cluster.workloads import installed, job_of, wait_class
from tests.harness.waiting import BUDGET_S
from tests.unit.planner.setups import job

SURPLUS = [f"edl-surplus-{grade}" for grade in range(1, 9)]
CLASSES = {"edl-core": 0, "edl-surplus": 1, "edl-surplus-1": 1, "edl-surplus-8": 8, "research": 0}
"""Those of which pods are tried, with the grade of surplus; 0: core."""

ASKS = {"resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
TERM = {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {}}
AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
TEMPLATES = {
    "plain": {"containers": [{"name": "a", "image": "none", **ASKS}]},
    "asks for nothing": {"containers": [{"name": "a", "image": "none"}]},
    "deadline": {"containers": [{"name": "a", "image": "none", **ASKS}], "activeDeadlineSeconds": 60},
    "other namespaces": {"containers": [{"name": "a", "image": "none", **ASKS}], "affinity": AFFINITY},
}
TRIED = [("plain", name) for name in CLASSES] + [(title, "edl-core") for title in TEMPLATES if title != "plain"]


def line(operator, *values, scope="PriorityClass"):
    return {"scopeName": scope, "operator": operator, **({"values": list(values)} if values else {})}


SCOPES = {
    "none": {},
    "core": {"scopeSelector": {"matchExpressions": [line("In", "edl-core")]}},
    "one grade": {"scopeSelector": {"matchExpressions": [line("In", "edl-surplus-8", "web")]}},
    "planner's surplus": {"scopeSelector": {"matchExpressions": [line("In", "edl-surplus")]}},
    "not core": {"scopeSelector": {"matchExpressions": [line("NotIn", "edl-core", "edl-surplus-1")]}},
    "any class": {"scopeSelector": {"matchExpressions": [line("Exists")]}},
    "no class": {"scopeSelector": {"matchExpressions": [line("DoesNotExist")]}},
    "two lines": {"scopeSelector": {"matchExpressions": [line("In", "edl-core", *SURPLUS), line("NotIn", "edl-core")]}},
    "best effort": {"scopes": ["BestEffort"]},
    "not best effort": {"scopeSelector": {"matchExpressions": [line("Exists", scope="NotBestEffort")]}},
    "terminating": {"scopes": ["Terminating"]},
    "not terminating": {"scopes": ["NotTerminating"]},
    "across namespaces": {
        "scopeSelector": {"matchExpressions": [line("Exists", scope="CrossNamespacePodAffinity")]},
    },
    "class and trait": {
        "scopes": ["Terminating"],
        "scopeSelector": {"matchExpressions": [line("In", "edl-core")]},
    },
}


@pytest.fixture
def ground(control_plane, api):
    """The definition of TrainingJob, EDL's classes, and one of somebody else's."""
    scheduling = client.SchedulingV1Api(api)
    with installed(control_plane, api):
        scheduling.create_priority_class({"metadata": {"name": "research"}, "value": 7})
        wait_class(api, "research")
        yield control_plane
        scheduling.delete_priority_class("research")


@pytest_asyncio.fixture
async def door(ground):
    opened = await connect(ground.kubeconfig)
    yield opened
    await opened.close()


async def is_refused(door, namespace, template, class_name):
    """Whether a quota keeps such a pod from being made."""
    spec = {**TEMPLATES[template], "priorityClassName": class_name, "schedulingGates": [{"name": "a/b"}]}
    try:
        await door.create(PODS, {"metadata": {"name": "x", "namespace": namespace}, "spec": spec})
    except ForbiddenError as error:
        if error.refused_by is not RefusedBy.QUOTA:
            raise
        return True
    await door.delete(PODS, "x", namespace=namespace, grace_s=0)
    return False


def is_counted(quota, template, class_name):
    """What the reading says.  A class of surplus that this mode of reclaim does not give counts for nothing."""
    one = job("j", priority_class=class_name)
    one = replace(one, trainer=replace(one.trainer, traits=traits_of(TEMPLATES[template])))
    return quota is not None and quota.counts(one, Role.TRAINER, CLASSES[class_name])


def as_read(raw, class_name):
    return parse_quota(raw, Reclaim.PLANNER if class_name == "edl-surplus" else Reclaim.SCHEDULER)


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
async def test_what_is_read_is_what_admission_counts(door, namespace, scope):
    """No pod at all is allowed to those that the quota counts."""
    body = {"metadata": {"name": "none", "namespace": namespace}, "spec": {"hard": {"pods": "0"}, **scope}}
    await door.create(RESOURCE_QUOTAS, body)

    async def differing():
        raw = await door.get(RESOURCE_QUOTAS, "none", namespace=namespace)
        return [
            (template, name)
            for template, name in TRIED
            if await is_refused(door, namespace, template, name) != is_counted(as_read(raw, name), template, name)
        ]

    until_s = time.monotonic() + BUDGET_S
    while found := await differing():  # its admission sees the quota, and the controller counts it, a moment later
        assert time.monotonic() < until_s, found
        await asyncio.sleep(0.25)


def quota_of(name, pods, *classes):
    spec = {"hard": {"pods": str(pods)}, "scopeSelector": {"matchExpressions": [line("In", *classes)]}}
    return {"metadata": {"name": name}, "spec": spec}


def limits_of(view, namespace):
    quotas = (quota for quota in view.quotas if quota.namespace == namespace)
    return {(quota.name, limit.hard, limit.used) for quota in quotas for limit in quota.limits}


async def until_told(edl, key, now, message):
    """Until the last plan says of the job that its quota keeps it at this size, in these words."""

    def is_told(_view):
        plan = edl.loop.last_plan
        decisions = () if plan is None else plan.decisions
        told = (Bottleneck.QUOTA, now, message)
        return any((one.bottleneck, one.now, one.message) == told for one in decisions if one.job == key)

    await edl.wait(message, is_told)


async def test_a_gang_and_its_surplus_stay_within_their_own_quotas(ground, api, core, namespace, nodes):
    """No pod is asked for that admission refuses, and the answer names the quota."""
    nodes(*[NodeShape(cpu="4", memory="16Gi")] * 4)
    key = f"{namespace}/digits"
    policy = Policy(reclaim=Reclaim.SCHEDULER, up_window_s=0.0, quiet_window_s=0.0, burst_window_s=0.0)
    core.create_namespaced_resource_quota(namespace, quota_of("few", 3, "edl-core"))
    core.create_namespaced_resource_quota(namespace, quota_of("spare", 3, *SURPLUS))
    async with Autoscaling(ground.kubeconfig, policy) as edl:
        counted = {("few", 3, 0), ("spare", 3, 0)}  # before the controller has counted nothing is left
        await edl.wait("quotas are counted", lambda view: limits_of(view, namespace) == counted)
        custom = client.CustomObjectsApi(api)
        custom.create_namespaced_custom_object(namespace=namespace, body=job_of("digits"), **GROUP)
        await until_told(edl, key, 0, "quota few leaves 3 pods, 4 needed")
        assert not edl.applied

        core.patch_namespaced_resource_quota("few", namespace, {"spec": {"hard": {"pods": "4"}}})
        await until_told(edl, key, 5, "quota spare leaves 0 pods, 1 needed")
        await edl.wait("two core trainers and three more", lambda view: len(trainers(view, key)) == 5)
        custom.delete_namespaced_custom_object(name="digits", namespace=namespace, **GROUP)
        await edl.wait("gone", lambda view: not any(pod.job == key for pod in view.pods))
        assert not [problem for problem in edl.problems if "quota" in problem]
