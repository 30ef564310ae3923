"""Queues in front of the writer and behind it are bounded, keep their order, and hold up nobody else."""

import asyncio

import pytest

from master.api.identities import Incarnation, MemberName
from master.api.messages.to_members import Fenced, Wait
from master.job.domain.durable_records import MemberKey
from master.job.domain.job_events import StreamBroken
from master.term.event_queue import EventQueue
from master.term.member_streams import MemberStream, MemberStreams

ONE, OTHER = (MemberKey(name=MemberName("t"), incarnation=Incarnation(i)) for i in "ab")


def event(number: int) -> StreamBroken:
    return StreamBroken(member=MemberKey(name=MemberName("t"), incarnation=Incarnation(str(number))))


async def test_what_has_gathered_leaves_together_and_in_order():
    """One envelope for all that was said since the last one."""
    stream = MemberStream("peer")
    for number in range(3):
        stream.send(Wait(request=number, retry_after_s=1.0))
    assert [message.request for message in await stream.take()] == [0, 1, 2]
    waiting = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.send(Fenced(reason="x"))
    assert await waiting == [Fenced(reason="x")]


async def test_a_stream_ends_after_what_was_sent_before():
    """A member hears why it is sent away."""
    stream = MemberStream("peer")
    stream.send(Fenced(reason="stale"))
    stream.finish("sent away")
    stream.send(Fenced(reason="too late"))
    assert await stream.take() == [Fenced(reason="stale")]
    assert await stream.take() == []


async def test_a_term_that_is_over_says_nothing_more():
    """A fenced master stops answering at once (M5)."""
    stream = MemberStream("peer")
    stream.send(Fenced(reason="x"))
    stream.abandon("the term is over")
    assert await stream.take() == []


async def test_a_member_that_does_not_read_loses_its_stream():
    """No queue grows without bound; it asks again when it is back."""
    stream = MemberStream("peer", limit=2)
    for number in range(3):
        stream.send(Wait(request=number, retry_after_s=1.0))
    assert "does not read" in stream.end_reason
    assert await stream.take() == []


def test_the_newest_stream_of_a_member_counts():
    """An older stream ends, and its end is no news (only a newest stream can break)."""
    streams, old, new = MemberStreams(), MemberStream("old"), MemberStream("new")
    for stream in (old, new):
        streams.open(stream)
        assert streams.register(stream, ONE) is None
    assert old.end_reason
    assert streams.close(old) is None
    assert streams.try_find(ONE) is new
    assert streams.close(new) == ONE
    assert streams.try_find(ONE) is None
    assert len(streams) == 0


def test_a_stream_that_registers_as_somebody_else_has_left_the_first():
    """After FENCED a process may come back under another name on the same stream."""
    streams, stream = MemberStreams(), MemberStream("peer")
    streams.open(stream)
    assert streams.register(stream, ONE) is None
    assert streams.register(stream, ONE) is None
    assert streams.register(stream, OTHER) == ONE
    assert streams.try_find(ONE) is None
    assert streams.close(stream) == OTHER


async def test_the_writer_takes_events_in_turns():
    """In order of arrival, at most so many at once."""
    inbox = EventQueue(limit=10)
    await inbox.extend([event(1), event(2)])
    inbox.add(event(3))
    await inbox.wait(None)
    assert inbox.take(2) == [event(1), event(2)]
    await inbox.wait(None)
    assert inbox.take(2) == [event(3)]
    assert inbox.take(2) == []


async def test_an_inbox_that_was_emptied_waits_for_the_next_event():
    """Else the writer would turn without end."""
    inbox = EventQueue(limit=10)
    inbox.add(event(1))
    inbox.take(5)
    waiting = asyncio.create_task(inbox.wait(None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    inbox.add(event(2))
    await waiting


async def test_members_wait_while_the_writer_is_behind_and_outcomes_do_not():
    """Back-pressure reaches the stream; the answer of the store is never refused."""
    inbox = EventQueue(limit=2)
    await inbox.extend([event(1), event(2)])
    waiting = asyncio.create_task(inbox.extend([event(4)]))
    await asyncio.sleep(0)
    assert not waiting.done()
    inbox.add(event(3))
    assert inbox.take(3) == [event(1), event(2), event(3)]
    await waiting
    assert inbox.take(3) == [event(4)]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 0.001])
async def test_waiting_ends_with_the_deadline(timeout_s):
    """The writer wakes for deadlines without events."""
    inbox = EventQueue(limit=2)
    async with asyncio.timeout(60):
        await inbox.wait(timeout_s)
    assert inbox.take(1) == []
