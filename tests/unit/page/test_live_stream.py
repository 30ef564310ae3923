"""Live parts: made when what they show has changed, and otherwise only as often as ages need it."""

import asyncio
import contextlib
import logging
from dataclasses import replace

import pytest

from autoscaler.page.access.answer_limits import MOST_MADE_AT_ONCE, ViewerTurns
from autoscaler.page.live import live_stream
from autoscaler.page.live.live_stream import LiveHub, Topic
from autoscaler.page.page_metrics import PageMetrics
from autoscaler.views.documents import EVERYTHING
from tests.harness.page_cluster import FixedSource, demo_documents
from tests.harness.waiting import BUDGET_S

TOPIC = Topic(page="now", arguments=(), query=(), rights=EVERYTHING)


class Stage:
    """A hub whose topic shows `shown`; `made` counts its parts."""

    def __init__(self):
        self.source = FixedSource(demo_documents())
        self.shown, self.made, self.asked = (object(),), 0, asyncio.Queue()
        self.metrics, self.turns = PageMetrics(), ViewerTurns()
        self.hub = LiveHub(
            self.source, self.render, self.read, most_viewers=9, turns=self.turns, record=self.metrics.record_part
        )
        self.metrics.watch(lambda: self.hub.viewers, lambda: self.hub.topics)

    async def render(self, topic):
        self.made += 1
        return f"part {self.made}"

    def read(self, topic):
        self.asked.put_nowait(topic)
        return self.shown

    async def change(self):
        """Change something, and wait until the topic was asked whether it is concerned."""
        while not self.asked.empty():
            self.asked.get_nowait()
        self.source.change(demo_documents())
        async with asyncio.timeout(BUDGET_S):
            await self.asked.get()


@pytest.fixture
async def stage(monkeypatch):
    monkeypatch.setattr(live_stream, "LEAST_PAUSE_S", 0.0)
    made = Stage()
    yield made
    await made.hub.close()


async def test_a_change_of_what_it_does_not_show_makes_no_part(stage):
    """Hundreds of viewers of one namespace cost nothing while others change."""
    with stage.hub.follow(TOPIC, "viewer") as part:
        assert await part.newer_than(0, BUDGET_S) == 1
        for _ in range(3):
            await stage.change()
        stage.shown = (object(),)
        await stage.change()
        assert await part.newer_than(1, BUDGET_S) == 2
        assert (stage.made, part.html) == (2, "part 2")
        assert part.event == b"id: 2\nevent: part\ndata: part 2\n\n"


async def test_a_viewer_without_a_turn_keeps_no_other_from_its_part(stage):
    """Streams of one viewer are made at its own expense."""
    async with contextlib.AsyncExitStack() as taken:
        for _ in range(MOST_MADE_AT_ONCE):
            await taken.enter_async_context(stage.turns.turn("greedy"))
        other = replace(TOPIC, page="waiting")
        with stage.hub.follow(TOPIC, "greedy") as late, stage.hub.follow(other, "viewer") as part:
            assert await part.newer_than(0, BUDGET_S) == 1
            assert late.number == 0
            await taken.aclose()
            assert await late.newer_than(0, BUDGET_S) == 1


async def test_what_is_not_known_to_be_the_same_is_made_anew(stage):
    stage.shown = None
    with stage.hub.follow(TOPIC, "viewer") as part:
        for number in range(3):
            assert await part.newer_than(number, BUDGET_S) == number + 1
            await stage.change()


async def test_a_fault_of_what_it_is_made_of_ends_no_topic(stage, monkeypatch, caplog):
    """It is logged once, however often it comes, and the next part is made as soon as it is gone."""
    asked, read = asyncio.Queue(), stage.read

    def fail(topic):
        asked.put_nowait(topic)
        raise KeyError("metadata")

    with stage.hub.follow(TOPIC, "viewer") as part, caplog.at_level(logging.ERROR):
        assert await part.newer_than(0, BUDGET_S) == 1
        monkeypatch.setattr(stage.hub, "_read_from", fail)
        for _ in range(2):
            stage.source.change(demo_documents())
            async with asyncio.timeout(BUDGET_S):
                await asked.get()
        monkeypatch.setattr(stage.hub, "_read_from", read)
        stage.shown = (object(),)
        stage.source.change(demo_documents())
        assert await part.newer_than(1, BUDGET_S) == 2
    assert [record.message for record in caplog.records] == ["page now cannot be rendered"]


async def test_ages_move_on_however_often_others_change(stage, monkeypatch):
    """Changes elsewhere put off no part that is due."""
    monkeypatch.setattr(live_stream, "REFRESH_S", 0.05)
    with stage.hub.follow(TOPIC, "viewer") as part:
        assert await part.newer_than(0, BUDGET_S) == 1
        async with asyncio.timeout(BUDGET_S):
            while part.number < 3:
                await stage.change()


async def test_who_looks_and_what_it_costs_is_counted(stage):
    """Of two viewers of one page: two viewers, one topic, one part; and nothing once they have left."""
    with stage.hub.follow(TOPIC, "viewer") as part, stage.hub.follow(TOPIC, "viewer"):
        await part.newer_than(0, BUDGET_S)
        told = stage.metrics.render().decode()
        assert "edl_page_viewers 2.0" in told
        assert "edl_page_topics 1.0" in told
        assert 'edl_page_part_seconds_count{page="now"} 1.0' in told
    assert "edl_page_viewers 0.0" in stage.metrics.render().decode()
    assert "edl_page_topics 0.0" in stage.metrics.render().decode()
