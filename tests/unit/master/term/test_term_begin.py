"""How a term begins beside a store that is not there all the time, and who comes as it ends."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.document import decode_document
from master.api.edl.master.v1 import master_pb2
from master.api.identities import HistoryId, Lineage, ManifestId
from master.api.master_status import JobStatus
from master.api.wire.hello import Hello
from master.api.wire.message_codec import encode_hello, encode_member_envelope
from master.durable.checkpoint_folder import CheckpointFolder
from master.errors import FencedError, StoreUnavailableError
from master.process.grpc_server import MasterServer
from master.process.leader_terms import LeaderTerms
from master.process.master_config import Settings
from master.store.memory_store import MemoryCluster, MemoryStore
from master.term.counters import Counters
from tests.unit.master.api.checkpoints.test_manifest_codec import MANIFEST


class Link(MemoryStore):
    """A memory store that does not answer the first reads of what is durable."""

    def __init__(self, *, refusals):
        cluster = MemoryCluster()
        super().__init__(cluster, cluster.store("digits").keys)
        self.refusals = refusals
        self.campaigns = 0

    async def try_lead(self, *, holder, ttl_s):
        self.campaigns += 1
        return await super().try_lead(holder=holder, ttl_s=ttl_s)

    async def read(self, keys):
        asked = tuple(keys)
        if self.keys.head in asked and self.refusals:
            self.refusals -= 1
            raise StoreUnavailableError("no route", retry_after_s=0.0)
        return await super().read(asked)


class RefusedError(Exception):
    """What gRPC raises in a servicer that aborts a call."""


class Caller:
    """What gRPC says of one call, and its way to refuse it."""

    def peer(self):
        return "127.0.0.1:1"

    async def abort(self, code, _text, trailing_metadata=()):
        raise RefusedError(code, *trailing_metadata)


async def led(server):
    async with asyncio.timeout(60):
        while server.term is None:  # noqa: ASYNC110 - a few turns of the loop; the server tells nobody
            await asyncio.sleep(0)


def terms_of(folder, store, server):
    settings = Settings.from_environment({"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": str(folder)})
    storage = CheckpointFolder(LocalStorage(folder))
    return LeaderTerms(settings=settings, store=store, folder=storage, server=server, counts=Counters())


async def test_a_member_whose_term_ends_while_its_hello_is_awaited_is_sent_away(tmp_path):
    """On a stream of a term that is over nobody would ever say anything, not even that it is over."""
    server = MasterServer(hello=Hello(job="digits"), token="")
    serving = asyncio.create_task(terms_of(tmp_path, Link(refusals=0), server).run(holder="me"))
    await led(server)

    async def says_hello_late():
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        yield encode_member_envelope((), hello=Hello(job="digits"))

    async def hear_all():
        return [envelope async for envelope in server.Connect(says_hello_late(), Caller())]

    with pytest.raises(RefusedError) as refused:
        await asyncio.wait_for(hear_all(), 60)
    assert refused.value.args[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_status_is_told_to_whoever_speaks_our_version_and_means_our_job(tmp_path):
    """By the master that leads; any other answer would be of another job, or read as what it is not."""
    server = MasterServer(hello=Hello(job="digits"), token="")
    plain, other = master_pb2.StatusRequest(), master_pb2.StatusRequest(hello=encode_hello(Hello(job="letters")))
    with pytest.raises(RefusedError) as refused:
        await server.Status(plain, Caller())
    assert refused.value.args[0] is grpc.StatusCode.UNAVAILABLE
    store = Link(refusals=0)
    serving = asyncio.create_task(terms_of(tmp_path, store, server).run(holder="me"))
    await led(server)
    for request in (plain, master_pb2.StatusRequest(hello=encode_hello(Hello(job="digits")))):
        reply = await server.Status(request, Caller())
        assert decode_document(JobStatus, reply.job_status_json).term == (await store.read_leader()).term
    with pytest.raises(RefusedError) as refused:
        await server.Status(other, Caller())
    assert refused.value.args[0] is grpc.StatusCode.FAILED_PRECONDITION
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_an_edited_backoff_limit_reaches_a_running_master_with_the_next_poll(tmp_path):
    """Its environment is that of its start; a poll that names no limit leaves the last one."""
    server = MasterServer(hello=Hello(job="digits"), token="")
    serving = asyncio.create_task(terms_of(tmp_path, Link(refusals=0), server).run(holder="me"))
    await led(server)
    for request in (master_pb2.StatusRequest(backoff_limit=20), master_pb2.StatusRequest()):
        await server.Status(request, Caller())
        async with asyncio.timeout(60):
            while server.term._state.config.backoff_limit != 20:  # noqa: ASYNC110 - as in `led`
                await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_term_that_cannot_read_the_store_asks_again_and_campaigns_once(tmp_path):
    """Giving the leadership up would cost a campaign and a term for each read that failed."""
    store, counts = Link(refusals=3), Counters()
    settings = Settings.from_environment({"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": str(tmp_path)})
    server = MasterServer(hello=Hello(job="digits"), token="")
    folder = CheckpointFolder(LocalStorage(tmp_path))
    terms = LeaderTerms(settings=settings, store=store, folder=folder, server=server, counts=counts)
    serving = asyncio.create_task(terms.run(holder="me"))
    try:
        await led(server)
        assert (store.refusals, store.campaigns, counts.terms) == (0, 1, 1)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert server.term is None
    assert await store.read_leader() is None


@pytest.mark.parametrize(("name", "leads"), [("me", True), ("somebody else", False)])
async def test_the_lease_of_the_process_before_at_this_place_is_given_back(tmp_path, name, leads):
    """Its own name and address: that one is dead, and its lease is not waited for; another's is (ADR 0202)."""
    store, server = Link(refusals=0), MasterServer(hello=Hello(job="digits"), token="")
    before = await store.try_lead(holder="me", ttl_s=600)
    serving = asyncio.create_task(terms_of(tmp_path, store, server).run(holder=name))
    if leads:
        await led(server)
        assert server.term is not None
        with pytest.raises(FencedError):
            await store.renew(before)
    else:
        async with asyncio.timeout(60):
            while store.campaigns < 1:  # noqa: ASYNC110 - a few turns of the loop
                await asyncio.sleep(0)
        assert server.term is None
        assert await store.read_leader() == before
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("lineage", [0, 7])
async def test_a_history_begins_above_all_that_the_folder_holds(tmp_path, lineage):
    """Its numbers are nobody else's, and none is left out: the first job of a folder begins at 1 (M11)."""
    folder = LocalStorage(tmp_path)
    variables = {"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": str(tmp_path)}
    if lineage:
        name = ManifestId(f"{lineage:06d}-0000000001-000001-old")
        write_manifest(folder, replace(MANIFEST, id=name, lineage=Lineage(lineage), files=()))
        variables |= {"EDL_HISTORY": "new", "EDL_CHECKPOINT_START": "fresh"}
    server = MasterServer(hello=Hello(job="digits"), token="")
    settings, storage = Settings.from_environment(variables), CheckpointFolder(folder)
    terms = LeaderTerms(
        settings=settings, store=MemoryCluster().store("digits"), folder=storage, server=server, counts=Counters()
    )
    serving = asyncio.create_task(terms.run(holder="me"))
    await led(server)
    assert server.term._state.origin.founded == lineage + 1
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize(
    ("mine", "is_answer", "origin"),
    [("new", True, ("new", 8)), ("new", False, ("new", 8)), ("", False, ("old", 1))],
)
async def test_what_is_committed_next_belongs_to_the_jobs_own_history(tmp_path, mine, is_answer, origin):
    """Head is still that of the old one, whichever master follows; who has no history goes on in the old one (M11)."""
    folder = LocalStorage(tmp_path)
    manifest = replace(MANIFEST, lineage=Lineage(7), founded=Lineage(1), history=HistoryId("old"), files=())
    write_manifest(folder, manifest)
    write_head_hint(folder, manifest.id)
    variables = {
        "EDL_JOB": "digits",
        "EDL_CHECKPOINT_URI": str(tmp_path),
        "EDL_HISTORY": mine,
        "EDL_CHECKPOINT_START": manifest.id if is_answer else "",
    }
    store, origins = MemoryCluster().store("digits"), []
    for _ in range(3):
        server = MasterServer(hello=Hello(job="digits"), token="")
        settings, storage = Settings.from_environment(variables), CheckpointFolder(folder)
        terms = LeaderTerms(settings=settings, store=store, folder=storage, server=server, counts=Counters())
        serving = asyncio.create_task(terms.run(holder="me"))
        await led(server)
        found = server.term._state.origin
        origins.append((found.history, found.founded))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert origins == [origin] * 3
