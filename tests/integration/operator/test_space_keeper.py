"""One job fills etcd, the others commit on: a real etcd with a small quota, a process that writes without pause."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from autoscaler.errors import PermanentError
from autoscaler.operator.etcd.job_accounts import JobAccounts
from autoscaler.operator.etcd.space_keeper import FREE_KEYS, EtcdSpaceKeeper, is_filling
from autoscaler.operator.metrics import Metrics
from master.errors import StoreUnavailableError
from master.store.etcd.etcd_channel import EtcdChannel
from master.store.etcd.etcd_upkeep import UPKEEP_S, EtcdUpkeep
from master.store.etcd.stubs import stubs
from master.store.job_keys import JobKeys
from master.store.store_port import Committed, Put, Transaction, Unknown
from tests.harness.secured_etcd import ROOT, asking, config_of, etcd_with_users, rpc
from tests.integration.operator.test_accounts import Stage

pytestmark = pytest.mark.usefixtures("patient_connections")

QUOTA_BYTES = 64 * 1024**2
REFUSED_AT_MOST_S = 2 * UPKEEP_S
"""From the first refusal of an honest commit to the last: two rounds, each within etcd's upkeep."""


class CountingUpkeep(EtcdUpkeep):
    """Counts the pages that it reads."""

    pages = 0

    async def _keys(self, name, request):
        self.pages += 1
        return await super()._keys(name, request)


class BusyUpkeep(EtcdUpkeep):
    """Of an etcd that is too busy to delete."""

    async def trim(self, job, *, most_bytes):
        raise StoreUnavailableError(f"no answer about {job} ({most_bytes})")


async def fill(stage, job, values):
    """These stand under the job's prefix, by name; a busy machine has time for it."""
    prefix = JobKeys(stage.credentials(job).user).prefix
    puts = [rpc.PutRequest(key=f"{prefix}{name}".encode(), value=value) for name, value in values]
    channel = EtcdChannel(replace(stage.config, call_deadline_s=UPKEEP_S))
    longest = max(len(put.key) + len(put.value) for put in puts)
    at_once = min(100, max(1, 1024**2 // longest))  # below etcd's limits of a request
    for start in range(0, len(puts), at_once):
        few = [rpc.RequestOp(request_put=put) for put in puts[start : start + at_once]]
        await channel.call(lambda grpc: stubs.KVStub(grpc).Txn, rpc.TxnRequest(success=few))
    await channel.close()


@pytest.fixture
async def stage(etcd_binary, tmp_path):
    async with etcd_with_users(etcd_binary, tmp_path / "guarded", f"--quota-backend-bytes={QUOTA_BYTES}") as config:
        stage = Stage(config)
        settings = replace(stage.accounts.settings, manages_space=True)
        stage.accounts = JobAccounts(stage.api, settings, may_write=lambda: stage.leads, clock=lambda: stage.now_s)
        stage.lead()
        async with stage.accounts:
            yield stage


@asynccontextmanager
async def flood(stage, job, how):
    """Runs until etcd turns it away, or the test ends."""
    who = stage.credentials(job)
    told = {"endpoint": stage.config.endpoints[0], "ca": stage.config.tls.ca.decode(), "how": how}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.etcd_flood"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        process.stdin.write(json.dumps(told | {"user": who.user, "password": who.password}).encode())
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"begins\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Honest:
    """A master's commits, one after the other, each settled before the next: what was told stands."""

    def __init__(self, store):
        self.store = store
        self.count = 0
        self.news = asyncio.Event()
        self.refused_s = []

    async def more(self, count):
        """So many from now on."""
        reached = self.count + count
        while self.count < reached:
            self.news.clear()
            await self.news.wait()

    async def run(self):
        loop = asyncio.get_running_loop()
        leadership = await self.store.try_lead(holder="a", ttl_s=600)
        while True:
            value = b"%d" % (self.count + 1)
            outcome = await self.store.commit(
                Transaction(term=leadership.term, writes=(Put(self.store.keys.head, value),))
            )
            if isinstance(outcome, Unknown):
                self.refused_s.append(loop.time())
                standing = (await self.store.read((self.store.keys.head,))).try_value(self.store.keys.head)
                assert standing in {b"%d" % self.count if self.count else None, value}
                is_done = standing == value
            else:
                is_done = isinstance(outcome, Committed)
                assert is_done
            if is_done:
                self.count += 1
                self.news.set()
            await asyncio.sleep(0.05)


class GivenUp:
    """Keeps which jobs are given up, by their names in etcd, and why."""

    def __init__(self, jobs):
        self.jobs = jobs

    def fail_over_etcd(self, name_in_etcd, excess):
        self.jobs.append((name_in_etcd, excess))


@pytest.mark.parametrize("how", ["one key", "keys", "deleted"])
async def test_a_job_that_fills_etcd_is_barred_and_the_others_commit_on(stage, how):
    """Commits of an honest job go on within a bound, and stay; nothing told as committed is lost (A11, M6)."""
    honest, hostile = await stage.start("digits"), await stage.start("squares")
    store = stage.store(honest, stage.credentials(honest))
    commits, barred = Honest(store), []
    room = EtcdSpaceKeeper(stage.accounts, GivenUp(barred), Metrics())
    async with asyncio.TaskGroup() as tasks:
        committing = tasks.create_task(commits.run())
        keeping = tasks.create_task(room.run())
        async with flood(stage, hostile, how) as process, asyncio.timeout(180):
            await process.wait()
            assert process.returncode == 0  # turned away: it has no rights any more
            await commits.more(20)
        committing.cancel()
        keeping.cancel()
    print(
        how,
        commits.count,
        len(commits.refused_s),
        commits.refused_s and commits.refused_s[-1] - commits.refused_s[0],
        barred,
    )
    [(name, words)] = barred
    assert name == stage.credentials(hostile).user
    assert "at most" in words
    if commits.refused_s:
        assert commits.refused_s[-1] - commits.refused_s[0] < REFUSED_AT_MOST_S
    assert (await store.read((store.keys.head,))).try_value(store.keys.head) == b"%d" % commits.count
    await store.close()
    with pytest.raises(PermanentError, match="barred"):
        await stage.accounts.make(hostile, "again")


async def test_nobody_is_barred_while_etcd_has_room(stage):
    """A job with more than its bounds in an etcd that is far from full is left alone, and nothing is compacted."""
    job = await stage.start("digits")
    store = stage.store(job, stage.credentials(job))
    async with asking(stage.config, credentials=stage.credentials(job)) as ask:
        for number in range(100):
            key = f"{store.keys.prefix}{number}".encode()
            first = await ask("KV", "Put", rpc.PutRequest(key=key, value=b"x"))
    barred = []
    room = EtcdSpaceKeeper(stage.accounts, GivenUp(barred), Metrics())
    upkeep = EtcdUpkeep(stage.config)
    assert not await room.check(upkeep)
    assert barred == []
    async with asking(stage.config) as ask:
        await ask("KV", "Range", rpc.RangeRequest(key=b"/", revision=first.header.revision - 50))
    await upkeep.close()
    await store.close()


async def test_job_whose_keys_fill_no_file_but_memory_is_barred(stage):
    """Millions of empty keys took what etcd may have of memory, for good, where a tenth of its quota was used (A11)."""
    job, other, barred = await stage.start("digits"), await stage.start("squares"), []
    beside = stage.store(other, stage.credentials(other))
    assert isinstance(await beside.commit(await first_write(beside)), Committed)
    room = EtcdSpaceKeeper(stage.accounts, GivenUp(barred), Metrics())
    upkeep = EtcdUpkeep(stage.config)
    await fill(stage, job, [(f"{number:x}", b"") for number in range(FREE_KEYS)])
    assert not is_filling(await upkeep.size())
    async with asyncio.timeout(60):
        while not barred:
            with suppress(StoreUnavailableError):  # on a busy machine
                await room.check(upkeep)
    assert {name for name, _ in barred} == {stage.credentials(job).user}
    assert await upkeep.keys() < 20
    assert (await beside.read((beside.keys.head,))).try_value(beside.keys.head) == b"1"
    for one in (upkeep, beside):
        await one.close()


async def first_write(store):
    """Of a master that has just come to lead."""
    leadership = await store.try_lead(holder="a", ttl_s=60)
    return Transaction(term=leadership.term, writes=(Put(store.keys.head, b"1"),))


async def test_of_a_job_with_very_many_keys_one_page_is_read(stage):
    """Nobody is kept from being found while each of a job's empty keys is read; keys count as much as values (A11)."""
    many, long = await stage.start("digits"), await stage.start("squares")
    await fill(stage, many, [(str(number), b"") for number in range(1_000)])
    await fill(stage, long, [(f"{number:0100000}", b"") for number in range(20)])
    upkeep = CountingUpkeep(stage.config)
    found = await upkeep.standing(stage.credentials(many).user, most_keys=64, most_bytes=1024**2)
    assert (found.keys, upkeep.pages) == (1_000, 1)
    found = await upkeep.standing(stage.credentials(long).user, most_keys=64, most_bytes=1024**2)
    assert found.keys == 20
    assert found.stored_bytes > 1024**2
    await upkeep.close()


async def test_a_barred_job_is_told_although_its_keys_cannot_be_deleted(stage):
    """It writes nothing more, so no later round would bar it again; and the round goes on for the others (A11)."""
    job, barred, is_whole_round = await stage.start("digits"), [], False
    await fill(stage, job, [(str(number), b"x" * 1024**2) for number in range(20)])
    room = EtcdSpaceKeeper(stage.accounts, GivenUp(barred), Metrics())
    upkeep = BusyUpkeep(stage.config)
    async with asyncio.timeout(60):
        while not is_whole_round:
            with suppress(StoreUnavailableError):  # on a busy machine: what it asks first
                is_whole_round = await room.check(upkeep)
    assert barred
    assert {name for name, _ in barred} == {stage.credentials(job).user}
    await upkeep.close()


async def test_trimming_leaves_what_a_master_writes(stage):
    """Head and the other known keys stand; unknown ones, and those that are too large for all to stand, are gone."""
    job, other = await stage.start("digits"), await stage.start("squares")
    store, beside = (stage.store(one, stage.credentials(one)) for one in (job, other))
    async with asking(stage.config) as ask:
        for key in (*store.keys.known, *beside.keys.known, store.keys.named("zzz"), store.keys.named("headx")):
            await ask("KV", "Put", rpc.PutRequest(key=key.encode(), value=b"1"))
        await ask("KV", "Put", rpc.PutRequest(key=store.keys.route.encode(), value=b"x" * 100_000))
    upkeep = EtcdUpkeep(stage.config)
    await upkeep.trim(store.keys.job, most_bytes=1024**2)
    async with asking(stage.config) as ask:
        found = await ask("KV", "Range", rpc.RangeRequest(key=b"/edl/v1/jobs/", range_end=b"/edl/v1/jobs0"))
    wanted = {*store.keys.known, *beside.keys.known} - {store.keys.route}
    assert {kv.key.decode() for kv in found.kvs} == wanted
    for one in (upkeep, store, beside):
        await one.close()


async def test_a_barred_job_stays_barred_for_the_next_operator(stage):
    """Whoever leads next makes its user good again after no look at its Secret; only its own end takes it away."""
    job = await stage.start("digits")
    name = stage.credentials(job).user
    await stage.accounts.bar(name)
    await stage.accounts.bar(name)  # may be repeated
    stage.lead()
    with pytest.raises(PermanentError, match="barred"):
        await stage.objects.prepare(job)
    async with asking(config_of(stage.config, ROOT)) as ask:
        assert list((await ask("Auth", "UserGet", rpc.AuthUserGetRequest(name=name))).roles) == ["edl-barred"]
