"""One user of etcd a job: what a stranger can do, what is left after a job, and what running masters notice of it."""

import asyncio
from contextlib import aclosing, suppress
from itertools import pairwise

import pytest

from master.errors import MasterError, PermanentError, StoreAccessError, StoreUnavailableError
from master.store.etcd.etcd_accounts import EtcdAccounts
from master.store.etcd.etcd_config import Credentials
from master.store.etcd.etcd_store import EtcdStore
from master.store.etcd.stubs import rpc
from master.store.store_port import Committed, Put, Transaction
from tests.harness.secured_etcd import UNHURRIED, accounts_of, asking, config_of, enable_auth, etcd_with_users

pytestmark = pytest.mark.usefixtures("patient_connections")

DIGITS = Credentials(user="team-a.digits.0f8fad5b", password="digits' password")
OTHER = Credentials(user="team-b.other.7c9e6679", password="the other's password")
HEAD = b"/edl/v1/jobs/team-a.digits.0f8fad5b/head"
FREE_LEASE = 4711


@pytest.fixture
async def guarded(etcd_binary, tmp_path):
    async with etcd_with_users(etcd_binary, tmp_path / "guarded") as config:
        yield config


@pytest.fixture
async def accounts(guarded):
    async with accounts_of(guarded) as accounts:
        yield accounts


@pytest.fixture
async def both(guarded, accounts):
    """The stores of two jobs that each have their own user."""
    stores = []
    for who in (DIGITS, OTHER):
        await accounts.make(who.user, who.password)
        stores.append(EtcdStore(config_of(guarded, who), who.user))
    yield stores
    for store in stores:
        await store.close()


async def put(store, term, value=b"1"):
    return await store.commit(Transaction(term=term, writes=(Put(store.keys.head, value),)))


async def test_a_role_for_the_jobs_own_prefix_is_all_that_a_master_needs(both):
    """Leading, writing, renewing, following and resigning (A11)."""
    own, _ = both
    leadership = await own.try_lead(holder="a", ttl_s=600)
    assert isinstance(await put(own, leadership.term), Committed)
    await own.renew(leadership)
    async with asyncio.timeout(60), aclosing(own.watch(own.keys.prefix, after=leadership.term)) as events:
        assert (await anext(events)).entry.value == b"1"
    await own.resign(leadership)
    assert await own.read_leader() is None


def in_a_txn(*, compare=(), success=()):
    return rpc.TxnRequest(compare=compare, success=success)


def foreign_requests(lease):
    """(service, method, request) of everything that reads or changes another job, or all of them."""
    put_head = rpc.PutRequest(key=HEAD, value=b"forged")
    read_head = rpc.RangeRequest(key=HEAD)
    return [
        ("KV", "Range", read_head),
        ("KV", "Range", rpc.RangeRequest(key=b"\0", range_end=b"\0")),
        ("KV", "Range", rpc.RangeRequest(key=b"/edl/v1/accounts/", range_end=b"/edl/v1/accounts0", keys_only=True)),
        ("KV", "Put", put_head),
        ("KV", "DeleteRange", rpc.DeleteRangeRequest(key=HEAD)),
        ("KV", "Txn", in_a_txn(success=[rpc.RequestOp(request_put=put_head)])),
        ("KV", "Txn", in_a_txn(success=[rpc.RequestOp(request_range=read_head)])),
        ("KV", "Txn", in_a_txn(compare=[rpc.Compare(key=HEAD, target=rpc.Compare.VALUE, value=b"1")])),
        ("KV", "Compact", rpc.CompactionRequest(revision=2)),
        ("Lease", "LeaseLeases", rpc.LeaseLeasesRequest()),
        ("Lease", "LeaseTimeToLive", rpc.LeaseTimeToLiveRequest(ID=lease, keys=True)),
        ("Lease", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease)),
        ("KV", "Put", rpc.PutRequest(key=f"/edl/v1/jobs/{OTHER.user}/x".encode(), value=b"1", lease=lease)),
        ("Auth", "UserList", rpc.AuthUserListRequest()),
        ("Auth", "UserGet", rpc.AuthUserGetRequest(name=DIGITS.user)),
        ("Auth", "UserChangePassword", rpc.AuthUserChangePasswordRequest(name=DIGITS.user, password="x")),
        ("Auth", "UserGrantRole", rpc.AuthUserGrantRoleRequest(user=OTHER.user, role=DIGITS.user)),
        ("Auth", "AuthDisable", rpc.AuthDisableRequest()),
        ("Cluster", "MemberRemove", rpc.MemberRemoveRequest(ID=1)),
        ("Maintenance", "Defragment", rpc.DefragmentRequest()),
        ("Maintenance", "MoveLeader", rpc.MoveLeaderRequest(targetID=1)),
    ]


async def test_a_job_reaches_nothing_of_another_one(guarded, both):
    """Its credentials read, write, delete, compare, watch, compact and revoke nothing that is not its own (A11)."""
    own, other = both
    leadership = await own.try_lead(holder="a", ttl_s=600)
    assert isinstance(await put(own, leadership.term), Committed)
    async with asking(guarded, credentials=OTHER) as ask:
        for service, method, request in foreign_requests(leadership.lease):
            with pytest.raises(StoreAccessError, match="permission denied"):
                await ask(service, method, request)
    with pytest.raises(StoreAccessError):
        async with asyncio.timeout(60), aclosing(other.watch(own.keys.prefix, after=1)) as events:
            await anext(events)
    with pytest.raises(MasterError):
        await other._leases.renew(leadership.lease)  # a dead master's lease is not kept alive by a stranger
    await own.renew(leadership)
    assert (await own.read((own.keys.head,))).try_value(own.keys.head) == b"1"


async def test_nobody_guesses_a_lease_that_has_no_keys_yet(guarded, both):
    """Anybody may revoke a lease between its grant and its campaign; numbers that followed one another were found."""
    own, _ = both
    leases = [await own._leases.grant(30) for _ in range(16)]
    async with asking(guarded, credentials=OTHER) as ask:
        granted = (await ask("Lease", "LeaseGrant", rpc.LeaseGrantRequest(TTL=30))).ID
        for guess in range(granted - 200, granted + 200):
            if guess != granted:
                with pytest.raises(MasterError):
                    await ask("Lease", "LeaseRevoke", rpc.LeaseRevokeRequest(ID=guess))
    ordered = sorted([granted, *leases])
    assert min(later - earlier for earlier, later in pairwise(ordered)) > 1000


async def test_nothing_is_left_of_a_job_that_was_dropped(guarded, accounts, both):
    """Neither user nor role nor keys nor record; its masters are turned away, the other job goes on."""
    own, other = both
    leadership = await other.try_lead(holder="b", ttl_s=600)
    assert isinstance(await put(own, (await own.try_lead(holder="a", ttl_s=600)).term), Committed)
    await accounts.drop(DIGITS.user)
    with pytest.raises(StoreAccessError):
        await own.read_leader()
    assert await accounts.jobs() == (OTHER.user,)
    async with asking(guarded) as ask:
        found = await ask("KV", "Range", rpc.RangeRequest(key=b"/", range_end=b"0", keys_only=True))
        assert not [kv.key for kv in found.kvs if b"digits" in kv.key]
        assert set((await ask("Auth", "UserList", rpc.AuthUserListRequest())).users) == {"root", OTHER.user}
        assert set((await ask("Auth", "RoleList", rpc.AuthRoleListRequest())).roles) == {"root", OTHER.user}
    assert isinstance(await put(other, leadership.term), Committed)


async def test_what_somebody_changed_is_made_good(guarded, accounts):
    """A user whose password or role was taken has both again; making it again changes nothing."""
    await accounts.make(DIGITS.user, DIGITS.password)
    async with asking(guarded) as ask:
        await ask("Auth", "UserRevokeRole", rpc.AuthUserRevokeRoleRequest(name=DIGITS.user, role=DIGITS.user))
        await accounts.make(DIGITS.user, "a new one")
        async with asking(guarded, credentials=Credentials(user=DIGITS.user, password="a new one")) as as_job:
            await as_job("KV", "Range", rpc.RangeRequest(key=HEAD))
        changed = []  # etcd tells nobody the revision of its users
        accounts._change = lambda name, *_, **__: changed.append(name)
        await accounts.make(DIGITS.user, "a new one")
        assert changed == []


class Interrupted(EtcdAccounts):
    """Ends at its `left`-th call to etcd, before it is sent or after it was answered."""

    def __init__(self, config, left, *, is_answered):
        super().__init__(config, cluster="c1", is_separate=True)
        self.left = left
        self.is_answered = is_answered

    async def _call(self, method, request):
        self.left -= 1
        if self.left == 0:
            if self.is_answered:
                with suppress(PermanentError):
                    await super()._call(method, request)
            raise StoreUnavailableError("the operator ends here")
        return await super()._call(method, request)


@pytest.mark.parametrize("is_answered", [False, True])
async def test_an_operator_that_ends_at_any_write_leaves_nothing_for_ever(guarded, accounts, is_answered):
    """Making and dropping, interrupted at each call: the next one finishes it, and `jobs` names what is left (A9)."""
    for verb in ("make", "drop"):
        for left in range(1, 20):
            if verb == "drop":
                await accounts.make(DIGITS.user, DIGITS.password)
            first = Interrupted(guarded, left, is_answered=is_answered)
            try:
                await (first.make(DIGITS.user, "another") if verb == "make" else first.drop(DIGITS.user))
            except StoreUnavailableError:
                is_over = False
            else:
                is_over = True
            finally:
                await first.close()
            await check_goes_on(guarded, accounts, verb)
            if is_over:
                break
        assert 3 < left < 19


async def check_goes_on(guarded, accounts, verb):
    """The next operator ends it; what `jobs` does not name has left nothing."""
    if verb == "make":
        await accounts.make(DIGITS.user, DIGITS.password)
        store = EtcdStore(config_of(guarded, DIGITS), DIGITS.user)
        leadership = await store.try_lead(holder="a", ttl_s=600)
        assert isinstance(await put(store, leadership.term), Committed)
        await store.close()
    for job in await accounts.jobs():
        await accounts.drop(job)
    async with asking(guarded) as ask:
        assert not (await ask("KV", "Range", rpc.RangeRequest(key=b"\0", range_end=b"\0", keys_only=True))).kvs
        assert list((await ask("Auth", "UserList", rpc.AuthUserListRequest())).users) == ["root"]
        assert list((await ask("Auth", "RoleList", rpc.AuthRoleListRequest())).roles) == ["root"]


async def test_clusters_on_one_etcd_see_their_own_jobs_alone(guarded, accounts):
    """What another cluster's operator made is nothing to sweep; pages of many names are read to their end."""
    async with accounts_of(guarded, cluster="c2") as others, asking(guarded) as ask:
        await others.make(OTHER.user, OTHER.password)
        for number in range(1001):
            await ask("KV", "Put", rpc.PutRequest(key=f"/edl/v1/accounts/c1/n.job{number}.00000000".encode()))
        assert len(set(await accounts.jobs())) == 1001
        assert await others.jobs() == (OTHER.user,)


@pytest.mark.parametrize("option", ["--auth-token=simple", "jwt"])
async def test_a_master_commits_while_users_come_and_go(etcd_binary, tmp_path, option):
    """No commit, read, renewal or watch fails for it; with tokens of both kinds."""
    if option == "jwt":
        (tmp_path / "secret").write_text("s" * 32)
        option = f"--auth-token=jwt,priv-key={tmp_path}/secret,sign-method=HS256,ttl=10m"
    async with etcd_with_users(etcd_binary, tmp_path / "guarded", option) as config, accounts_of(config) as accounts:
        await accounts.make(DIGITS.user, DIGITS.password)
        store = EtcdStore(config_of(config, DIGITS), DIGITS.user)
        leadership = await store.try_lead(holder="a", ttl_s=600)
        gone: list[int] = []
        churn = asyncio.create_task(come_and_go(accounts, gone))
        done = 0
        while not churn.done() and (done <= 20 or len(gone) < 25):
            assert isinstance(await put(store, leadership.term, b"%d" % done), Committed)
            assert (await store.read((store.keys.head,))).try_value(store.keys.head) == b"%d" % done
            await store.renew(leadership)
            async with asyncio.timeout(60), aclosing(store.watch(store.keys.head, after=leadership.term)) as events:
                await anext(events)
            done += 1
        churn.cancel()
        with suppress(asyncio.CancelledError):
            await churn  # raises what ended it
        await store.close()
        assert len(gone) >= 25


async def come_and_go(accounts, gone):
    """Users of other jobs are made and dropped until this is cancelled; `gone` has the number of each."""
    while True:
        number = len(gone)
        await accounts.make(f"team-b.job{number}.00000000", "x")
        await accounts.drop(f"team-b.job{number}.00000000")
        gone.append(number)


async def test_an_etcd_that_answers_strangers_is_noticed(guarded, accounts, etcd, open_store):
    """Users without authentication separate nobody."""
    assert not await accounts.is_open()
    plain = open_store(etcd, **UNHURRIED)._channel.config
    async with accounts_of(plain, is_separate=False) as shared:
        assert await shared.is_open()


async def test_without_a_user_that_makes_users_keys_still_go(etcd, open_store):
    """Jobs that share etcd leave no keys behind either."""
    store = open_store(etcd, job=DIGITS.user, **UNHURRIED)
    async with accounts_of(store._channel.config, is_separate=False) as shared:
        await shared.make(DIGITS.user, "")
        assert isinstance(await put(store, (await store.try_lead(holder="a", ttl_s=600)).term), Committed)
        assert await shared.jobs() == (DIGITS.user,)
        await shared.drop(DIGITS.user)
        assert await shared.jobs() == ()
        assert await store.read_leader() is None
        await enable_auth(store._channel.config)
    with pytest.raises(StoreAccessError):
        await store.read_leader()
