"""Watching on a real API server: its bookmarks keep a quiet store fresh, and a standstill of the server is survived."""

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from autoscaler.clusters.kubernetes.api.api_port import EventType, Scope
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, PODS
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache, key_of
from autoscaler.clusters.kubernetes.cache.reflector import Reflector, WatchPolicy
from autoscaler.fault_isolation import JobErrors
from tests.cluster.experiment.insisting import insist
from tests.harness.waiting import BUDGET_S

KINDS = (CONFIG_MAPS, PODS)
POLICY = WatchPolicy(turn_s=4.0, silence_s=4.5, longest_pause_s=1.0)
UNHURRIED = replace(POLICY, silence_s=60.0)  # what ends a turn is the server then, however slow the machine is


class ListeningStore(ObjectCache):
    """A store that keeps what it was told."""

    def __init__(self, namespaces):
        super().__init__(JobErrors(lambda: 0.0), namespaces=namespaces)
        self.events = set()
        self.silent_turns = {kind: [] for kind in KINDS}  # when each was heard to its end

    def apply_event(self, kind, event, *, at_s, source):
        super().apply_event(kind, event, at_s=at_s, source=source)
        self.events.add(event.type)

    def record_progress(self, kind, *, at_s, source):
        super().record_progress(kind, at_s=at_s, source=source)
        assert self.confirmed_at_s(kind, source) == at_s
        self.silent_turns[kind].append(at_s)


@asynccontextmanager
async def watched(raw, *namespaces, policy=POLICY):
    store = ListeningStore(namespaces=dict.fromkeys(KINDS, namespaces))
    watching = Reflector(
        raw,
        store,
        KINDS,
        now=time.monotonic,
        jitter=random.random,
        notify=lambda: None,
        policy=policy,
    )
    running = asyncio.create_task(watching.run())
    try:
        await come(lambda: store.is_synced(KINDS))
        yield store, watching
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def come(probe, budget_s=BUDGET_S):
    async with asyncio.timeout(budget_s):
        while not probe():  # noqa: ASYNC110 - the store is told by nobody but the server
            await asyncio.sleep(0.05)


async def make(raw, namespace, name):
    await raw.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}})


def age_s(store):
    return time.monotonic() - store.oldest_confirmed_at_s(KINDS)


async def test_quiet_store_is_heard_of_at_the_end_of_every_turn(raw, namespace, monkeypatch):
    """No event comes, and yet the server ends each turn when it was asked to, and that is heard of (rule 21).

    Turns are counted, not timed: how long one takes on a busy machine says nothing about the product.
    """
    asked_s, watch = [], raw.watch

    def note(kind, scope, *, timeout_s, **more):
        asked_s.append(timeout_s)
        return watch(kind, scope, timeout_s=timeout_s, **more)

    monkeypatch.setattr(raw, "watch", note)
    async with watched(raw, namespace, policy=UNHURRIED) as (store, watching):
        await come(lambda: min(map(len, store.silent_turns.values())) >= 3)
        assert set(asked_s) == {UNHURRIED.turn_s}
        assert store.events <= {EventType.BOOKMARK}
        assert watching.problems == {}
        for kind, heard_s in store.silent_turns.items():
            assert sorted(set(heard_s)) == heard_s
            assert store.confirmed_at_s(kind, namespace) >= heard_s[-1]


async def test_store_comes_to_the_truth_after_a_standstill(control_plane, raw, namespace):
    server = control_plane.programs["kube-apiserver"]
    async with watched(raw, namespace) as (store, watching):
        for number in range(20):
            await make(raw, namespace, f"before-{number}")
        server.send(signal.SIGSTOP)
        try:
            await come(lambda: watching.problems and age_s(store) > POLICY.silence_s / 2)
        finally:
            server.send(signal.SIGCONT)
        await insist(partial(make, raw, namespace, "after"))
        for number in range(10):
            await raw.delete(CONFIG_MAPS, f"before-{number}", namespace=namespace)
        listing = await raw.list(CONFIG_MAPS, Scope(namespace=namespace))
        await come(lambda: store.version(CONFIG_MAPS, namespace) >= int(listing.resource_version))
        assert dict(store.objects(CONFIG_MAPS)) == {key_of(one): one for one in listing.items}
        await come(lambda: not watching.problems)
