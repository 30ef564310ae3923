"""A real API server makes of pods under LimitRanges what `parsing.limit_ranges` says it will, and refuses the same."""

import asyncio
import time

import pytest
import pytest_asyncio

from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, InvalidError, RefusedBy
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import LIMIT_RANGES, PODS
from autoscaler.clusters.kubernetes.parsing.limit_ranges import parse_limit_ranges
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from tests.cluster.test_kube_objects_real import SPECS, container
from tests.harness.waiting import BUDGET_S

MORE = {
    "nothing asked": {"containers": [container()]},
    "request and limit": {"containers": [container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "4"})]},
    "two, one open": {"containers": [container(requests={"cpu": "300m", "memory": "64Mi"}), container("b")]},
}
EVERYTHING = SPECS | MORE
RANGES = {
    "defaults": [
        {
            "type": "Container",
            "default": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "2Gi"},
            "defaultRequest": {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        }
    ],
    "small defaults": [{"type": "Container", "default": {"cpu": "500m"}}],
    "request alone": [{"type": "Container", "defaultRequest": {"memory": "200Mi"}}],
    "container most": [{"type": "Container", "max": {"cpu": "1"}}],
    "container least": [{"type": "Container", "min": {"cpu": "200m", "memory": "64Mi"}}],
    "pod most": [{"type": "Pod", "max": {"memory": "512Mi"}}],
    "pod least": [{"type": "Pod", "min": {"cpu": "1"}}],
    "ratio": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}, "default": {"cpu": "1"}}],
    "two lines": [{"type": "Container", "default": {"memory": "2Gi"}}, {"type": "Pod", "max": {"memory": "3Gi"}}],
}


@pytest_asyncio.fixture
async def door(control_plane):
    opened = await connect(control_plane.kubeconfig)
    yield opened
    await opened.close()


async def made_of(door, namespace, spec):
    """The pod as it was stored, or None where the server refused it for its size."""
    body = {"metadata": {"name": "x", "namespace": namespace}, "spec": {**spec, "schedulingGates": [{"name": "a/b"}]}}
    try:
        raw = await door.create(PODS, body)
    except InvalidError:
        return None
    except ForbiddenError as error:
        if error.refused_by is not RefusedBy.LIMIT_RANGE:
            raise
        return None
    await door.delete(PODS, "x", namespace=namespace, grace_s=0)
    return raw["spec"]


@pytest.mark.parametrize("lines", RANGES.values(), ids=RANGES)
async def test_what_is_said_is_what_is_made(door, namespace, lines):
    body = {"metadata": {"name": "range", "namespace": namespace}, "spec": {"limits": lines}}
    await door.create(LIMIT_RANGES, body)
    listing = await door.list(LIMIT_RANGES, Scope(namespace=namespace))
    limits = parse_limit_ranges(listing.items)[namespace]

    async def differing():
        found = []
        for title, spec in EVERYTHING.items():
            stored, refusal = await made_of(door, namespace, spec), limits.find_problem(spec, "spec")
            if (stored is None) != bool(refusal):
                found.append((title, refusal or "not refused"))
            elif stored is not None and pod_request(stored) != pod_request(limits.fill(spec)):
                found.append((title, pod_request(stored), pod_request(limits.fill(spec))))
        return found

    until_s = time.monotonic() + BUDGET_S
    while found := await differing():  # its admission sees the range a moment later
        assert time.monotonic() < until_s, found
        await asyncio.sleep(0.5)
