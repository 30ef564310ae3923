"""What a term goes on from beside a store that knows the job: an answer, once, or what it falls back to (M11)."""

import asyncio
import json
import threading
from dataclasses import replace

import pytest

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.document import encode_document
from master.api.identities import HistoryId, Lineage, ManifestId
from master.api.master_status import JobPhase
from master.api.positions import EMPTY
from master.api.wire.hello import Hello
from master.durable.checkpoint_folder import CheckpointFolder
from master.errors import PermanentError, StoreUnavailableError
from master.job.domain.durable_records import DatasetRecord, LineageRecord
from master.process import term_start as lives
from master.process.grpc_server import MasterServer
from master.process.leader_terms import LeaderTerms
from master.process.master_config import Settings
from master.store.memory_store import MemoryCluster
from master.store.store_port import Delete, Put, Transaction
from master.term.counters import Counters
from tests.unit.master.api.checkpoints.test_fallback import IDS, alter, written
from tests.unit.master.api.checkpoints.test_manifest_codec import MANIFEST

WAIT_S = 120.0


class Job:
    """One job: its folder and its store, and master after master."""

    def __init__(self, folder):
        self.storage = LocalStorage(folder)
        self.store = MemoryCluster().store("digits")
        self.server = MasterServer(hello=Hello(job="digits"), token="")

    def begin(self, start, when):
        settings = Settings.from_environment(
            {
                "EDL_JOB": "digits",
                "EDL_CHECKPOINT_URI": self.storage.uri,
                "EDL_HISTORY": "uid",
                "EDL_CHECKPOINT_START": start,
                "EDL_WHEN_UNREADABLE": when,
                "EDL_UNREADABLE_S": "0.01",
            }
        )
        folder, counts = CheckpointFolder(self.storage), Counters()
        terms = LeaderTerms(settings=settings, store=self.store, folder=folder, server=self.server, counts=counts)
        return asyncio.create_task(terms.run(holder="me"))

    async def status(self, *, start="", when="Fail", phase=None):
        """Of a master with these settings, once it serves, in this phase if any; its error where it ends before."""
        life = self.begin(start, when)
        try:
            async with asyncio.timeout(WAIT_S):
                while self.server.term is None:
                    if life.done():
                        life.result()
                    await asyncio.sleep(0.001)
                while phase not in (None, self.server.term.status().phase):  # noqa: ASYNC110 - the status is asked for, not told
                    await asyncio.sleep(0.001)
            return self.server.term.status()
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    async def put(self, *, head, holder="me", stays=False):
        """In the store, by a term of its own, which stays or goes."""
        leadership = await self.store.try_lead(holder=holder, ttl_s=60)
        write = Put(self.store.keys.head, head.encode())
        await self.store.commit(Transaction(term=leadership.term, writes=(write,), require=()))
        if not stays:
            await self.store.resign(leadership)

    async def commit(self, number, **term):
        """As a term does: the manifest, the store's head, HEAD."""
        manifest = written(self.storage, number)
        await self.put(head=manifest.id, **term)
        CheckpointFolder(self.storage).write_head(manifest.id)
        return manifest.id


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(lives, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(lives, "FAILURE_SHOWN_S", 0.0)
    return Job(tmp_path)


@pytest.fixture
async def trained(job):
    """Its first term found a checkpoint in the folder; two more were committed since."""
    write_head_hint(job.storage, written(job.storage, 1).id)
    assert (await job.status()).head == IDS[0]
    assert [await job.commit(2), await job.commit(3)] == list(IDS[1:])
    return job


async def test_an_answer_that_changes_while_the_job_is_suspended_is_followed_once(trained):
    """The store knows the job, so the field was not looked at again: only a new job heeded it (M11)."""
    before = await trained.status()
    assert before.head == IDS[2]
    after = await trained.status(start=IDS[0])
    assert after.head == IDS[0]
    assert after.lineage > before.lineage
    assert {f"manifest-{one}.json" for one in IDS[1:]} <= set(aside(trained))
    assert await trained.commit(2) == IDS[1]
    assert (await trained.status(start=IDS[0])).head == IDS[1], "it was followed already"
    assert (await trained.status()).head == IDS[1]
    assert (await trained.status(start=IDS[0])).head == IDS[0], "asked once more"
    begun = await trained.status(start="fresh")
    assert (begun.head, begun.epochs) == (None, 0)
    assert not trained.storage.list()
    assert (await trained.status(start="fresh")).head is None


async def test_an_answer_that_an_older_edl_has_followed_is_not_followed_again(trained):
    """Its store has no note of it: a master of this EDL takes the one that it finds as heeded."""
    leadership = await trained.store.try_lead(holder="me", ttl_s=60)
    forget = Transaction(term=leadership.term, writes=(Delete(trained.store.keys.start),), require=())
    await trained.store.commit(forget)
    await trained.store.resign(leadership)
    assert (await trained.status(start=IDS[0])).head == IDS[2]
    assert (await trained.status(start=IDS[1])).head == IDS[1]


async def test_an_answer_that_cannot_be_followed_changes_nothing(trained):
    """The file is named; the next master with another answer finds all as it was."""
    before = trained.storage.list()
    with pytest.raises(PermanentError, match="manifest nowhere: was requested"):
        await trained.status(start="nowhere")
    assert trained.storage.list() == before
    assert (await trained.status()).head == IDS[2]


async def test_a_job_falls_back_once_it_was_asked_to_and_tells_it(trained):
    """Also where the store knows a head; what could not be read is set aside, and nothing is deleted (M11)."""
    before = await trained.status()
    alter(trained.storage, f"manifest-{IDS[2]}.json")
    with pytest.raises(PermanentError, match=f"manifest-{IDS[2]}.json: "):
        await trained.status()
    after = await trained.status(when="FallBack")
    assert after.head == IDS[1]
    assert after.lineage > before.lineage
    assert f"fell back to {IDS[1]}" in after.fell_back
    assert f"manifest-{IDS[2]}.json" in aside(trained)
    assert (await trained.status()).head == IDS[1]


async def test_a_job_that_lost_its_store_too_falls_back(trained):
    """The folder alone tells, and HEAD names what cannot be read."""
    alter(trained.storage, f"manifest-{IDS[2]}.json")
    trained.store = MemoryCluster().store("digits")
    assert (await trained.status(when="FallBack")).head == IDS[1]


async def test_a_job_that_has_nothing_to_fall_back_to_fails(trained):
    """It never begins anew by itself."""
    for name in trained.storage.list("cut-"):
        alter(trained.storage, name)
    alter(trained.storage, f"manifest-{IDS[2]}.json")
    before = trained.storage.list()
    with pytest.raises(PermanentError, match="has no intact checkpoint before it"):
        await trained.status(when="FallBack")
    assert trained.storage.list() == before


@pytest.mark.parametrize("has_store", [True, False])
async def test_a_fallback_throws_no_newer_checkpoint_away(trained, has_store):
    """etcd, or HEAD, was brought back from an older copy: refused, also where the job may fall back (M11)."""
    if has_store:
        await trained.put(head=IDS[0])
    else:
        write_head_hint(trained.storage, ManifestId(IDS[0]))
        trained.store = MemoryCluster().store("digits")
    before = trained.storage.list()
    with pytest.raises(PermanentError, match="older copy"):
        await trained.status(when="FallBack")
    assert trained.storage.list() == before


async def begun(job):
    """A first term has come and gone and positions were granted: the store knows the job, and no checkpoint."""
    await job.status()
    leadership = await job.store.try_lead(holder="me", ttl_s=60)
    write = Put(job.store.keys.high_water, b"100")
    await job.store.commit(Transaction(term=leadership.term, writes=(write,), require=()))
    await job.store.resign(leadership)


def of_history(job, number, name):
    """A checkpoint of this history, which HEAD names."""
    manifest = replace(written(job.storage, number), history=HistoryId(name))
    write_manifest(job.storage, manifest)
    write_head_hint(job.storage, manifest.id)
    return manifest.id


@pytest.mark.parametrize("when", ["Fail", "FallBack"])
@pytest.mark.parametrize("harm", ["", "HEAD", "manifest"])
async def test_a_store_from_before_the_first_checkpoint_does_not_begin_anew(job, harm, when):
    """An etcd brought back from the job's first minute: it began at 0 and deleted what it had committed (M8, M11)."""
    await begun(job)
    head = of_history(job, 1, "uid")
    if harm:
        alter(job.storage, "HEAD") if harm == "HEAD" else alter(job.storage, f"manifest-{head}.json")
    before = job.storage.list()
    with pytest.raises(PermanentError, match=r"HEAD: .*the state store was restored from an older copy"):
        await job.status(when=when)
    assert job.storage.list() == before
    if not harm:
        assert (await job.status(start=head)).head == head, "somebody says so"


async def test_a_store_without_a_checkpoint_is_no_older_than_another_jobs_folder(job):
    """That one began beside this job and has committed first: each keeps its own (ADR 0188)."""
    await begun(job)
    of_history(job, 1, "another")
    assert (await job.status()).head is None


@pytest.mark.parametrize("history", ["uid", "another"])
async def test_a_new_master_adopts_what_its_own_job_wrote_alone(job, history):
    """Two jobs began in one empty folder, and one has committed: its samples stood as trained in the other (M1)."""
    await job.status(phase=JobPhase.STARTING)
    record = DatasetRecord(dataset=MANIFEST.dataset, tables=MANIFEST.tables)
    leadership = await job.store.try_lead(holder="me", ttl_s=60)
    lineage = LineageRecord(number=Lineage(1), base=None, quarantine=EMPTY)
    keys = job.store.keys
    writes = (Put(keys.dataset, encode_document(record)), Put(keys.lineage, encode_document(lineage)))
    await job.store.commit(Transaction(term=leadership.term, writes=writes, require=()))
    await job.store.resign(leadership)
    manifest = replace(written(job.storage, 1), history=HistoryId(history))
    write_manifest(job.storage, manifest)
    after = await job.status(phase=JobPhase.TRAINING)
    assert after.head == (manifest.id if history == "uid" else None)
    assert after.positions.committed == (100 if history == "uid" else 0)


async def test_a_store_from_before_this_jobs_own_first_checkpoint_is_refused(job):
    """It went on from its predecessor's, which is all that the older copy knows; HEAD names one of this job."""
    predecessors = written(job.storage, 1).id
    write_head_hint(job.storage, predecessors)
    assert (await job.status()).head == predecessors
    of_history(job, 2, "uid")
    before = job.storage.list()
    with pytest.raises(PermanentError, match=r"HEAD: .*the state store was restored from an older copy"):
        await job.status()
    assert job.storage.list() == before


async def test_an_answer_that_cannot_be_followed_is_not_overruled_by_a_fallback(trained):
    """Somebody's word is no damage; with and without a store (`check_start` says the same)."""
    before = trained.storage.list()
    for store in (trained.store, MemoryCluster().store("digits")):
        trained.store = store
        with pytest.raises(PermanentError, match="manifest nowhere: was requested"):
            await trained.status(start="nowhere", when="FallBack")
        assert trained.storage.list() == before


@pytest.mark.parametrize("ways", ["fall back", "follow", "begin"])
async def test_a_term_that_ended_meanwhile_moves_nothing_in_the_folder(trained, monkeypatch, ways):
    """It read for an hour, and another master led and committed meanwhile: its checkpoints stay where they are."""
    settings = {"start": IDS[0]} if ways != "fall back" else {"when": "FallBack"}
    if ways == "fall back":
        alter(trained.storage, f"manifest-{IDS[2]}.json")
    if ways == "begin":
        trained.store = MemoryCluster().store("digits")
    method = ways.replace(" ", "_")
    looks, found = threading.Event(), threading.Event()
    look = getattr(CheckpointFolder, method)

    def look_slowly(self, *arguments):
        looks.set()
        assert found.wait(WAIT_S)
        return look(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointFolder, method, look_slowly)
        life = trained.begin(**({"start": "", "when": "Fail"} | settings))
        assert await asyncio.to_thread(looks.wait, WAIT_S)
        leader = await trained.store.read_leader()
        await trained.store.resign(leader)  # its lease ran out, and another one leads
        assert await trained.commit(2, holder="other", stays=True) == IDS[1]
        before = trained.storage.list(), trained.storage.read("HEAD")
        found.set()
        await asyncio.gather(life, return_exceptions=True)
    assert (trained.storage.list(), trained.storage.read("HEAD")) == before


@pytest.mark.parametrize("how", ["fall back", "answer", "fresh"])
async def test_what_a_term_left_undone_in_the_folder_is_done_by_the_next(trained, monkeypatch, how):
    """It died between the store and the folder.  No lineage is used twice, though its files are out of sight."""
    if how == "fall back":
        alter(trained.storage, "cut-1-2-3-0-a.edl")
        alter(trained.storage, f"manifest-{IDS[2]}.json")
    start = {"fall back": "", "answer": IDS[1], "fresh": "fresh"}[how]
    before = (await trained.store.read((trained.store.keys.lineage,))).try_value(trained.store.keys.lineage)
    number = json.loads(before)["number"]

    def die(self, record, may_act):
        raise PermanentError("the master was killed")

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointFolder, "set_aside", die)
        with pytest.raises(PermanentError, match="was killed"):
            await trained.status(start=start, when="FallBack")
    assert not aside(trained)
    after = await trained.status(start=start, when="FallBack")
    assert after.head == (None if how == "fresh" else IDS[1])
    assert f"manifest-{IDS[2]}.json" in aside(trained)
    if how == "fresh":
        record = await trained.store.read((trained.store.keys.refounding,))
        assert json.loads(record.try_value(trained.store.keys.refounding))["above"] == number
    else:
        assert after.lineage > number
        assert ("fell back" in after.fell_back) == (how == "fall back")


async def test_a_fallback_is_told_by_every_master_until_a_lineage_begins_elsewhere(trained):
    """Whoever dies at once has told nobody; once the job goes on from another checkpoint it is no news."""
    alter(trained.storage, f"manifest-{IDS[2]}.json")
    told = (await trained.status(when="FallBack")).fell_back
    assert f"fell back to {IDS[1]}" in told
    assert (await trained.status()).fell_back == told
    assert (await trained.status(start=IDS[1])).fell_back == ""


async def test_a_store_that_fails_right_after_a_fallback_costs_nothing(trained, monkeypatch):
    """It was written, and the answer was lost: the next look finds it done."""
    alter(trained.storage, f"manifest-{IDS[2]}.json")
    store, read, failed = trained.store, trained.store.read, []

    async def fail_once(keys):
        snapshot = await read(keys)
        if snapshot.try_value(store.keys.head) == IDS[1].encode() and not failed:
            failed.append(True)
            raise StoreUnavailableError("away", retry_after_s=0.0)
        return snapshot

    monkeypatch.setattr(store, "read", fail_once)
    after = await trained.status(when="FallBack")
    assert failed
    assert after.head == IDS[1]
    assert f"fell back to {IDS[1]}" in after.fell_back
    assert f"manifest-{IDS[2]}.json" in aside(trained)


def aside(job):
    return LocalStorage(job.storage._folder / "aside" / "uid").list()
