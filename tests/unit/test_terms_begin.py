"""How a term begins beside a store that is not there all the time."""

import asyncio

from master.api.hello import Hello
from master.api.storage import LocalStorage
from master.config import Settings
from master.errors import StoreUnavailableError
from master.folder import CheckpointFolder
from master.metrics import Counts
from master.server import MasterServer
from master.store.memory import MemoryCluster, MemoryStore
from master.terms import Terms


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


async def test_a_term_that_cannot_read_the_store_asks_again_and_campaigns_once(tmp_path):
    """Giving the leadership up would cost a campaign and a term for each read that failed."""
    store, counts = Link(refusals=3), Counts()
    settings = Settings.from_environment({"EDL_JOB": "digits", "EDL_CHECKPOINT_URI": str(tmp_path)})
    server = MasterServer(hello=Hello(job="digits"), token="")
    folder = CheckpointFolder(LocalStorage(tmp_path))
    terms = Terms(settings=settings, store=store, folder=folder, server=server, counts=counts)
    serving = asyncio.create_task(terms.run(holder="me"))
    try:
        async with asyncio.timeout(5):
            while server.term is None:  # noqa: ASYNC110 - a few turns of the loop; the server tells nobody
                await asyncio.sleep(0)
        assert (store.refusals, store.campaigns, counts.terms) == (0, 1, 1)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    assert server.term is None
    assert await store.read_leader() is None
