"""Which lines of the decision log are kept: of each namespace its newest, whatever others write."""

import asyncio

import pytest

from autoscaler.cluster_page import event_lines
from autoscaler.cluster_page.event_lines import EventLines, fair_share
from autoscaler.clusters.kubernetes.api.kinds import EVENTS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.fields import to_time
from tests.harness import virtual_time

OWNER = FieldOwner("test", is_apply=False)
START_S = 1e9
TEAMS = ("aaa", "mmm", "zzz")


def put(server, namespace, number, at_s):
    body = {
        "metadata": {"name": f"event-{number}", "namespace": namespace},
        "eventTime": to_time(START_S + at_s),
        "regarding": {"kind": "TrainingJob", "name": "digits", "namespace": namespace},
        "note": str(at_s),
    }
    server.create(EVENTS, body, OWNER)


def kept(server, later=()):
    """Times of the lines by namespace, after the list and what is created `later`."""

    async def main():
        events = EventLines(MemoryApi(server), [""], notify=lambda: None)
        running = asyncio.create_task(events.run())
        await asyncio.sleep(1.0)
        for event in later:
            put(server, *event)
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return {team: [line.at_s - START_S for line in events.lines if line.namespace == team] for team in TEAMS}

    return virtual_time.run(main())


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(event_lines, "MOST_LINES", 12)
    return MemoryServer(now=lambda: START_S, namespaces=TEAMS)


def test_namespace_with_many_events_empties_no_other(server):
    """Each keeps its newest; a list comes by namespace, so that the last of them is not the newest."""
    for number in range(3):
        put(server, "aaa", number, 1_000 + number)
    for number in range(50):
        put(server, "zzz", number, number)
    found = kept(server, [("zzz", number, number) for number in range(50, 60)])
    assert found["aaa"] == [1_000, 1_001, 1_002]
    assert found["zzz"] == list(range(51, 60))


def test_lines_are_kept_by_their_time_and_not_by_their_arrival(server):
    for number in range(20):
        put(server, "mmm", number, 100 - number)
    assert kept(server)["mmm"] == list(range(89, 101))


@pytest.mark.parametrize(
    ("counts", "most", "share"),
    [((), 10, 0), ((3, 4), 10, 4), ((3, 50), 12, 9), ((50, 50), 12, 6), ((1, 5, 50), 12, 6)],
)
def test_share_of_each(counts, most, share):
    assert fair_share(counts, most) == share
    assert sum(min(count, share) for count in counts) <= most
