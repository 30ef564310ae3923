"""A term begins beside a checkpoint folder that fails or hangs for a while, and grants beside it (M5, M11)."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager

import pytest

from master.api.checkpoints.audit import try_head_hint, write_head_hint
from master.api.checkpoints.local_storage import LocalStorage
from master.api.errors import StorageError
from master.api.identities import ManifestId
from master.api.master_status import JobPhase
from master.api.wire.hello import Hello
from master.durable import checkpoint_folder as folders
from master.durable.checkpoint_folder import CheckpointFolder
from master.job.domain.effects import Retain
from master.process import term_start as lives
from master.process.grpc_server import MasterServer
from master.process.leader_terms import LeaderTerms
from master.process.master_config import Settings
from master.store.memory_store import MemoryCluster
from master.term.counters import Counters
from tests.unit.master.api.checkpoints.test_damage import committed

WAIT_S = 60.0


class Failing(LocalStorage):
    """A folder that fails the next `failures` times that somebody looks into it."""

    failures = 3

    def list(self, prefix=""):
        if self.failures:
            self.failures -= 1
            raise StorageError(prefix or ".", f"{self.uri} failed (Input/output error)")
        return super().list(prefix)


class Hanging(LocalStorage):
    """A folder that reads, but on which HEAD cannot be written until it is told."""

    def __init__(self, folder):
        super().__init__(folder)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.writing = 0

    def write_file(self, name, chunks):
        if name == "HEAD":
            self.writing += 1
            self.begun.set()
            assert self.go_on.wait(10 * WAIT_S)
        return super().write_file(name, chunks)


class Telling(MasterServer):
    """A server that remembers what it was told to say while no term was served."""

    def __init__(self):
        super().__init__(hello=Hello(job="digits"), token="")
        self.told = []

    def publish_status(self, status):
        self.told.append(status)
        super().publish_status(status)


@asynccontextmanager
async def serving(storage):
    """A master of a job with servers; what it says, and the task of its life."""
    settings = Settings.from_environment(
        {"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": storage.uri, "EDL_SERVERS": "2", "EDL_MAX_SERVERS": "9"}
    )
    server, store = Telling(), MemoryCluster().store("digits")
    terms = LeaderTerms(
        settings=settings, store=store, folder=CheckpointFolder(storage), server=server, counts=Counters()
    )
    life = asyncio.create_task(terms.run(holder="me"))
    try:
        yield server, store, life
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def led(server, life):
    async with asyncio.timeout(WAIT_S):
        while server.term is None:
            assert not life.done(), life.exception()
            await asyncio.sleep(0.001)
    return server.term


async def test_a_folder_that_fails_for_a_while_is_asked_again(tmp_path, monkeypatch):
    """An EIO or a 5xx at a take-over ended the leader, and with its exit code what stood by; the status tells of it."""
    monkeypatch.setattr(lives, "_PAUSES_S", (0.0,))
    async with serving(Failing(tmp_path)) as (server, _, life):
        await led(server, life)
    told = [status for status in server.told if status is not None]
    assert told
    assert all(one.phase is JobPhase.STARTING and "Input/output error" in one.problem for one in told)


async def test_a_term_that_ends_before_it_serves_leaves_no_word_behind(tmp_path, monkeypatch):
    """Status would tell of a folder's failure as long as another master leads."""
    monkeypatch.setattr(lives, "_PAUSES_S", (0.0,))
    storage = Failing(tmp_path)
    storage.failures = 10**9
    async with serving(storage) as (server, _, life):
        async with asyncio.timeout(WAIT_S):
            while not server.told:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.001)
        assert server._status_between_terms is not None
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        assert server._status_between_terms is None


async def test_a_folder_that_hangs_on_writes_holds_back_no_decision(tmp_path):
    """HEAD was waited for before the first grant, up to 60 s: far longer than a lease and 2 s (M5)."""
    storage = Hanging(tmp_path)
    head = committed(storage, 1, None)
    try:
        async with serving(storage) as (server, _, life):
            term = await led(server, life)
            assert (await asyncio.wait_for(term.set_servers(3), WAIT_S)).count == 3
            assert await asyncio.to_thread(storage.begun.wait, WAIT_S)
            assert try_head_hint(storage) is None
    finally:
        storage.go_on.set()
    assert (await asyncio.to_thread(noted, storage)) == head.id


async def test_nothing_goes_before_head_names_what_is_kept(tmp_path):
    """A new master may clear away before HEAD, which its predecessor left behind, is written anew (M8)."""
    storage = Hanging(tmp_path)
    before = committed(storage, 1, None)
    head = committed(storage, 2, before.id)
    write_head_hint(LocalStorage(tmp_path), head.id)
    try:
        async with serving(storage) as (server, _, life):
            term = await led(server, life)
            term._perform((Retain(manifests=frozenset({head.id})),))
            assert await asyncio.to_thread(storage.begun.wait, WAIT_S)
            await term.set_servers(3)
            assert before.id in {one.id for one in CheckpointFolder(storage).all()}
            storage.go_on.set()
            async with asyncio.timeout(WAIT_S):
                while before.id in {one.id for one in CheckpointFolder(storage).all()}:  # noqa: ASYNC110 - a folder
                    await asyncio.sleep(0.01)
    finally:
        storage.go_on.set()


async def test_a_term_that_is_ended_has_head_agree_with_what_it_said(tmp_path):
    """A job may be over as soon as a new master leads, and be stopped then: who has no store reads HEAD (M8)."""
    storage = Hanging(tmp_path)
    head = committed(storage, 1, None)
    storage.go_on.set()
    async with serving(storage) as (server, _, life):
        await led(server, life)
    assert try_head_hint(storage) == head.id


def test_one_call_at_most_waits_for_a_folder_that_hangs(tmp_path, monkeypatch):
    """Each later try parked one more thread, until none was left to write manifests."""
    monkeypatch.setattr(folders, "HEAD_LOCK_TIMEOUT_S", 0.01, raising=False)
    storage = Hanging(tmp_path)
    folder = CheckpointFolder(storage)
    calls = [threading.Thread(target=_note, args=(folder, n), daemon=True) for n in range(4)]
    try:
        calls[0].start()
        assert storage.begun.wait(WAIT_S)
        for call in calls[1:]:
            call.start()
            call.join(WAIT_S)
        assert [call.is_alive() for call in calls] == [True, False, False, False]
        with pytest.raises(StorageError, match="HEAD"):
            folder.write_head(ManifestId("newest"))
    finally:
        storage.go_on.set()
    calls[0].join(WAIT_S)
    folder.write_head(ManifestId("newest"))
    assert try_head_hint(storage) == "newest"


def noted(storage):
    """What HEAD names, once it names anything."""
    deadline_s = time.monotonic() + WAIT_S
    while (name := try_head_hint(storage)) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return name


def _note(folder, number):
    try:
        folder.write_head(ManifestId(f"n{number}"))
    except StorageError:
        return
