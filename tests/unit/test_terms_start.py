"""What a term goes on from beside a store that knows the job: an answer, once, or what it falls back to (M11)."""

import asyncio

import pytest

from master import terms as lives
from master.api.audit import write_head_hint
from master.api.hello import Hello
from master.api.storage import LocalStorage
from master.config import Settings
from master.errors import PermanentError
from master.folder import CheckpointFolder
from master.metrics import Counts
from master.server import MasterServer
from master.store.memory import MemoryCluster
from master.store.port import Delete, Put, Transaction
from master.terms import Terms
from tests.unit.test_checkpoint_fallback import IDS, alter, written

WAIT_S = 5.0


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
        folder, counts = CheckpointFolder(self.storage), Counts()
        terms = Terms(settings=settings, store=self.store, folder=folder, server=self.server, counts=counts)
        return asyncio.create_task(terms.run(holder="me"))

    async def status(self, *, start="", when="Fail"):
        """Of a master with these settings, once it serves; its own error where it ends before."""
        life = self.begin(start, when)
        try:
            async with asyncio.timeout(WAIT_S):
                while self.server.term is None:
                    if life.done():
                        life.result()
                    await asyncio.sleep(0.001)
            return self.server.term.status()
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)

    async def commit(self, number):
        """As a term does: the manifest, the store's head, HEAD."""
        manifest, keys = written(self.storage, number), self.store.keys
        leadership = await self.store.try_lead(holder="me", ttl_s=60)
        head = Put(keys.head, manifest.id.encode())
        await self.store.commit(Transaction(term=leadership.term, writes=(head,), require=()))
        await self.store.resign(leadership)
        CheckpointFolder(self.storage).note_head(manifest.id)
        return manifest.id


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(lives, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(lives, "TELL_FAILURE_S", 0.0)
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
    begun = await trained.status(start="anew")
    assert (begun.head, begun.epochs) == (None, 0)
    assert not trained.storage.list()
    assert (await trained.status(start="anew")).head is None


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
    with pytest.raises(PermanentError, match="manifest nowhere: is asked for"):
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
    with pytest.raises(PermanentError, match="no checkpoint before it is whole either"):
        await trained.status(when="FallBack")
    assert trained.storage.list() == before


def aside(job):
    return LocalStorage(job.storage._folder / "aside" / "uid").list()
