"""Watches: a part of the contract that every adapter of `Api` keeps."""

import asyncio
from contextlib import aclosing

import pytest

from autoscaler.clusters.kubernetes.api.api_port import EventType, Scope
from autoscaler.clusters.kubernetes.api.errors import ExpiredError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from tests.unit.clusters.kubernetes.api.contract.stage import number

MOST_OUTSIDE = 100


@pytest.mark.asyncio
class Watching:
    """See `KubeApiContract`."""

    async def test_watch_tells_every_change_since_the_listing_in_order(self, stage):
        since = await stage.version()
        await stage.api.create(CONFIG_MAPS, stage.config("one"))
        await stage.api.patch(CONFIG_MAPS, "one", {"data": {"a": "1"}}, namespace=stage.namespace)
        await stage.api.create(CONFIG_MAPS, stage.config("two"))
        await stage.api.delete(CONFIG_MAPS, "one", namespace=stage.namespace)
        words, events = await stage.watched(since=since, count=4)
        assert words == [("ADDED", "one"), ("MODIFIED", "one"), ("ADDED", "two"), ("DELETED", "one")]
        versions = [int(event.resource_version) for event in events]
        assert versions == sorted(set(versions))
        assert versions[0] > int(since)
        assert events[0].object["kind"] == "ConfigMap"
        assert events[-1].object["data"] == {"a": "1"}

    async def test_watch_goes_on_where_another_ended(self, stage):
        since = await stage.version()
        for name in ("one", "two", "three"):
            await stage.api.create(CONFIG_MAPS, stage.config(name))
        _, events = await stage.watched(since=since, count=2)
        words, _ = await stage.watched(since=events[-1].resource_version, count=1)
        assert words == [("ADDED", "three")]

    async def test_object_that_leaves_the_selection_is_deleted_for_its_watch(self, stage):
        scope = Scope(namespace=stage.namespace, labels="tier=core")
        since = await stage.version()
        await stage.api.create(CONFIG_MAPS, stage.config("one", labels={"tier": "core"}))
        for tier in ("surplus", "core"):
            change = {"metadata": {"labels": {"tier": tier}}}
            await stage.api.patch(CONFIG_MAPS, "one", change, namespace=stage.namespace)
        words, _ = await stage.watched(since=since, count=3, scope=scope)
        assert words == [("ADDED", "one"), ("DELETED", "one"), ("ADDED", "one")]

    async def test_watch_ends_by_itself_after_a_bookmark(self, stage):
        """The bookmark is no older than what has happened, and a watch from it goes on.

        A server has one to give only where the kind has gone on since the watch began: here outside of its scope.
        """
        since = await stage.version()
        scope = Scope(namespace=stage.namespace, labels="app=x")
        length_s = 6 * stage.shortest_s

        async def watch():
            events = stage.api.watch(CONFIG_MAPS, scope, since=since, timeout_s=length_s, silence_s=10 * length_s)
            return [event async for event in events]

        events, outside = [], []
        while not events and len(outside) < MOST_OUTSIDE:  # a machine may sleep from a watch's beginning to its end
            watching = asyncio.create_task(watch())
            while not watching.done():  # nobody tells from when on it stands
                outside.append(await stage.api.create(CONFIG_MAPS, stage.config(f"outside-{len(outside)}")))
                await asyncio.wait([watching], timeout=stage.shortest_s)
            events = await watching
        assert {event.type for event in events} == {EventType.BOOKMARK}
        assert int(events[-1].resource_version) >= number(outside[0])
        await stage.api.create(CONFIG_MAPS, stage.config("after", labels={"app": "x"}))
        words, _ = await stage.watched(since=events[-1].resource_version, count=1, scope=scope)
        assert words == [("ADDED", "after")]

    async def test_silent_watch_is_cut(self, stage):
        """Half open, or so it seems: nobody waits for its end."""
        since = await stage.version()
        events = stage.api.watch(CONFIG_MAPS, stage.scope, since=since, timeout_s=60, silence_s=stage.shortest_s)
        async with aclosing(events):
            with pytest.raises(UnavailableError) as cut:
                await anext(events)
        assert not cut.value.may_have_happened

    async def test_forgotten_version_is_expired(self, stage):
        kind, since = await stage.forgotten()
        with pytest.raises(ExpiredError):
            await stage.watched(since=since, count=1, kind=kind)
