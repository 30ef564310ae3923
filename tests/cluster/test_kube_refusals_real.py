"""What a real API server says when it refuses (the words that `refusals` reads), and how its silence is noticed."""

import asyncio
import signal
from contextlib import suppress

import pytest

from autoscaler.clusters.kubernetes.api.api_port import Scope
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, InvalidError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import (
    CONFIG_MAPS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
)
from tests.harness.waiting import BUDGET_S


def pod(namespace, **container):
    requests = {"cpu": "100m", "memory": "64Mi"}
    main = {"name": "main", "image": "registry.invalid/none:1", "resources": {"requests": requests}} | container
    return {
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"containers": [main], "schedulingGates": [{"name": "edl.dev/gang"}]},
    }


async def come(probe):
    async with asyncio.timeout(BUDGET_S):
        while not await probe():  # noqa: ASYNC110 - another process does it and tells nobody
            await asyncio.sleep(0.1)


async def refusal_of(api, body):
    """Why it is refused; what the API server heeds a moment after it was written is waited for."""
    refused = []

    async def is_refused():
        try:
            await api.create(PODS, body)
        except ForbiddenError as error:
            refused.append(error.refused_by)
            return True
        await api.delete(PODS, body["metadata"]["name"], namespace=body["metadata"]["namespace"], grace_s=0)
        return False

    await come(is_refused)
    return refused[0]


@pytest.mark.parametrize("hard", [{"pods": "0"}, {"limits.cpu": "1"}], ids=["exceeded", "not named"])
async def test_quota_is_told(raw, namespace, hard):
    await raw.create(RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": namespace}, "spec": {"hard": hard}})

    async def is_counted():
        return "hard" in (await raw.get(RESOURCE_QUOTAS, "q", namespace=namespace)).get("status", {})

    await come(is_counted)
    assert await refusal_of(raw, pod(namespace)) is RefusedBy.QUOTA


@pytest.mark.parametrize(
    "limit",
    [
        {"type": "Container", "max": {"cpu": "50m"}, "default": {"cpu": "50m"}},
        {"type": "Container", "min": {"cpu": "200m"}},
        {"type": "Pod", "max": {"memory": "1Mi"}},
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "1"}},
    ],
    ids=["maximum", "minimum", "pod", "ratio"],
)
async def test_limit_range_is_told(raw, namespace, limit):
    body = {"metadata": {"name": "l", "namespace": namespace}, "spec": {"limits": [limit]}}
    await raw.create(LIMIT_RANGES, body)
    limits = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    assert await refusal_of(raw, pod(namespace, resources=limits)) is RefusedBy.LIMIT_RANGE


async def test_pod_security_is_told(raw, namespace):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await raw.patch(NAMESPACES, namespace, {"metadata": {"labels": labels}})
    assert await refusal_of(raw, pod(namespace)) is RefusedBy.POD_SECURITY


async def test_missing_right_is_told(account, namespace):
    api = await connect(account("nobody"))
    try:
        assert await refusal_of(api, pod(namespace)) is RefusedBy.RBAC
        with pytest.raises(ForbiddenError) as refused:
            await api.list(PODS, Scope(namespace=namespace))
        assert refused.value.refused_by is RefusedBy.RBAC
    finally:
        await api.close()


async def test_secret_that_is_refused_is_not_quoted(raw, namespace):
    body = {"metadata": {"name": "s", "namespace": namespace}, "data": {"a key": "aHVudGVyMg=="}}
    with pytest.raises(InvalidError) as refused:
        await raw.create(SECRETS, body)
    assert "a key" not in str(refused.value)
    assert [problem.path for problem in refused.value.problems] == ["data[a key]"]


async def test_listing_of_more_than_a_page_is_whole(raw, namespace):
    names = [f"c-{number:04}" for number in range(1_100)]

    async def make(some):
        for name in some:
            await raw.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}})

    await asyncio.gather(*(make(names[first::10]) for first in range(10)))
    listing = await raw.list(CONFIG_MAPS, Scope(namespace=namespace))
    assert [item["metadata"]["name"] for item in listing.items if item["metadata"]["name"] in set(names)] == names


async def test_server_that_stands_still_is_noticed(control_plane, raw, namespace):
    """The kernel still answers for it, so that only silence tells: a watch is cut, a write has its deadline."""
    since = (await raw.list(CONFIG_MAPS, Scope(namespace=namespace))).resource_version
    events = raw.watch(CONFIG_MAPS, Scope(namespace=namespace), since=since, timeout_s=60, silence_s=2)
    server = control_plane.programs["kube-apiserver"]
    server.send(signal.SIGSTOP)
    try:
        with pytest.raises(UnavailableError):
            await anext(events)
        with pytest.raises(UnavailableError) as lost:
            await raw.create(CONFIG_MAPS, {"metadata": {"name": "late", "namespace": namespace}})
        assert lost.value.may_have_happened
    finally:
        server.send(signal.SIGCONT)
        await events.aclose()
    await come(lambda: answers(raw, namespace))


async def answers(api, namespace):
    """Whether it is heard within its deadline: a server that was stopped for long has much to do at first."""
    with suppress(UnavailableError):
        await api.list(CONFIG_MAPS, Scope(namespace=namespace))
        return True
    return False
