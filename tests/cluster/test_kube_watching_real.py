"""Watching on a real API server: its bookmarks keep a quiet store fresh, and a standstill of the server is survived."""

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager

import pytest_asyncio

from autoscaler.clusters.kubernetes.api.client import connect
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, PODS
from autoscaler.clusters.kubernetes.api.port import Scope
from autoscaler.clusters.kubernetes.store import Store, key_of
from autoscaler.clusters.kubernetes.watching import Watching, WatchPolicy
from autoscaler.job_errors import JobErrors

POLICY = WatchPolicy(turn_s=4.0, silence_s=4.5, longest_pause_s=1.0)


@pytest_asyncio.fixture
async def raw(control_plane):
    opened = await connect(control_plane.kubeconfig)
    yield opened
    await opened.close()


@asynccontextmanager
async def watched(raw, *namespaces):
    store = Store(JobErrors(lambda: 0.0), namespaces=dict.fromkeys((CONFIG_MAPS, PODS), namespaces))
    watching = Watching(
        raw,
        store,
        (CONFIG_MAPS, PODS),
        now=time.monotonic,
        jitter=random.random,
        notify=lambda: None,
        policy=POLICY,
    )
    running = asyncio.create_task(watching.run())
    try:
        await come(lambda: store.is_synced([CONFIG_MAPS, PODS]))
        yield store, watching
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def come(probe, budget_s=30.0):
    async with asyncio.timeout(budget_s):
        while not probe():  # noqa: ASYNC110 - the store is told by nobody but the server
            await asyncio.sleep(0.05)


async def make(raw, namespace, name):
    await raw.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}})


def age_s(store):
    return time.monotonic() - store.oldest_heard_at_s([CONFIG_MAPS, PODS])


async def test_quiet_store_stays_as_fresh_as_a_turn(raw, namespace):
    """No event comes, and yet it is heard of at every bookmark and every end (rule 21)."""
    async with watched(raw, namespace) as (store, watching):
        ages = []
        for _ in range(100):
            await asyncio.sleep(0.1)
            ages.append(age_s(store))
        assert max(ages) <= POLICY.turn_s
        assert watching.problems == {}


async def test_store_comes_to_the_truth_after_a_standstill(control_plane, raw, namespace):
    server = control_plane.programs["kube-apiserver"]
    async with watched(raw, namespace) as (store, watching):
        for number in range(20):
            await make(raw, namespace, f"before-{number}")
        server.send(signal.SIGSTOP)
        try:
            await come(lambda: watching.problems)
            assert age_s(store) > POLICY.silence_s / 2
        finally:
            server.send(signal.SIGCONT)
        await make(raw, namespace, "after")
        for number in range(10):
            await raw.delete(CONFIG_MAPS, f"before-{number}", namespace=namespace)
        listing = await raw.list(CONFIG_MAPS, Scope(namespace=namespace))
        await come(lambda: store.version(CONFIG_MAPS, namespace) >= int(listing.resource_version))
        assert dict(store.objects(CONFIG_MAPS)) == {key_of(one): one for one in listing.items}
        await come(lambda: not watching.problems)
