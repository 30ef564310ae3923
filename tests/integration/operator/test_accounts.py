"""The operator gives each job a user of etcd of its own and takes it back after the job: a real etcd, API in memory."""

import base64
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autoscaler.clusters.kubernetes.api.errors import InvalidError, NotLeadingError, UnauthorizedError
from autoscaler.clusters.kubernetes.api.kinds import SECRETS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.build_settings import EtcdAccess
from autoscaler.clusters.kubernetes.builders.pod_environment import IDENTITY_FOLDER, master_variables
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer, collect
from autoscaler.clusters.kubernetes.objects.names import store_name
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job
from autoscaler.errors import TemporaryError
from autoscaler.fault_isolation import JobErrors
from autoscaler.operator.controllers.owned_objects import OwnedObjects
from autoscaler.operator.etcd import job_accounts as module
from autoscaler.operator.etcd.job_accounts import GONE_FOR_S, AccountSettings, JobAccounts
from master.errors import StoreAccessError
from master.store.etcd.etcd_config import Credentials, EtcdConfig
from master.store.etcd.etcd_store import EtcdStore
from master.store.store_port import Committed, Put, Transaction
from tests.harness.secured_etcd import ROOT, UNHURRIED, asking, config_of, enable_auth, etcd_with_users, rpc
from tests.unit.clusters.kubernetes.fake_controllers import add_job
from tests.unit.clusters.kubernetes.raw_objects import raw_job

pytestmark = pytest.mark.usefixtures("patient_connections")


@pytest.fixture
async def guarded(etcd_binary, tmp_path):
    async with etcd_with_users(etcd_binary, tmp_path / "guarded") as config:
        yield config


class Stage:
    """An operator's accounts and objects.  `server` is the API server, `now_s` its time."""

    def __init__(self, config, *, is_separate=True):
        self.now_s = 1_800_000_000.0
        self.leads = True
        self.config = config
        self.server = MemoryServer(now=lambda: self.now_s, namespaces=("kube-system", "team-a"))
        self.api = MemoryApi(self.server)
        self.access = EtcdAccess(endpoints=",".join(config.endpoints), is_separate=is_separate)
        settings = AccountSettings(config=config, is_separate=is_separate)
        self.accounts = JobAccounts(self.api, settings, may_write=lambda: self.leads, clock=lambda: self.now_s)
        self.lead()

    def make_separate(self):
        """The administrator gives the operator a user that makes users: one that knows nothing yet leads."""
        self.access = replace(self.access, user="", password="", is_separate=True)
        settings = AccountSettings(config=self.config, is_separate=True)
        self.accounts = JobAccounts(self.api, settings, may_write=lambda: self.leads, clock=lambda: self.now_s)
        self.lead()

    def lead(self):
        """An operator that knows nothing yet."""
        self.errors = JobErrors(lambda: self.now_s)
        self.objects = OwnedObjects(
            self.api,
            self.access,
            self,
            now=lambda: datetime.fromtimestamp(self.now_s, UTC),
            accounts=self.accounts,
        )

    def server_count(self, _job):
        return 0

    def has_unstarted_pod(self, _job):
        return False

    async def start(self, name):
        """The job stands, and what it owns."""
        add_job(self.server, raw_job(name))
        job = self.job(name)
        await self.objects.prepare(job)
        return job

    def job(self, name):
        return parse_job(self.server.get(TRAINING_JOBS, "team-a", name))

    async def end(self, name):
        """Somebody deletes the job, and the garbage collector what it owned."""
        await self.api.delete(TRAINING_JOBS, name, namespace="team-a")
        collect(self.server)
        self.objects.forget(f"team-a/{name}")

    def credentials(self, job):
        """As its master finds them."""
        return self.credentials_of(job, master_variables(job, self.access))

    def credentials_of(self, job, variables):
        """As a master with these variables finds them now."""
        told = {one["name"]: one.get("value") for one in variables}
        data = self.server.get(SECRETS, job.namespace, f"{job.name}-master")["data"]
        file = told["EDL_ETCD_PASSWORD_FILE"].removeprefix(f"{IDENTITY_FOLDER}/")
        return Credentials(user=told["EDL_ETCD_USER"], password=base64.b64decode(data[file]).decode())

    def store(self, job, who):
        """The store of the job's master, opened by `who`."""
        return EtcdStore(config_of(self.config, who), store_name(job.namespace, job.name, job.uid))


@pytest.fixture
async def stage(guarded):
    stage = Stage(guarded)
    async with stage.accounts:
        yield stage


async def commits(store):
    """Whether it leads and commits with what it was given."""
    try:
        leadership = await store.try_lead(holder="a", ttl_s=600)
        outcome = await store.commit(Transaction(term=leadership.term, writes=(Put(store.keys.head, b"1"),)))
        await store.resign(leadership)
    except StoreAccessError:
        return False
    finally:
        await store.close()
    return isinstance(outcome, Committed)


async def test_each_job_finds_a_user_of_its_own_in_its_secret(stage):
    """Nobody else's secret opens its keys; root's password is in none (A11)."""
    digits, squares = await stage.start("digits"), await stage.start("squares")
    assert stage.credentials(digits).user != stage.credentials(squares).user
    assert await commits(stage.store(digits, stage.credentials(digits)))
    assert not await commits(stage.store(digits, stage.credentials(squares)))
    for secret in stage.server.all(SECRETS):
        assert secret["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
        assert ROOT.password.encode() not in b"".join(map(base64.b64decode, secret["data"].values()))


async def test_the_next_operator_keeps_the_password(stage):
    """Running masters are known by it."""
    job = await stage.start("digits")
    before = stage.credentials(job)
    stage.lead()
    await stage.objects.prepare(job)
    assert stage.credentials(job) == before
    assert await commits(stage.store(job, before))


@pytest.mark.parametrize("lost", ["the secret", "the password", "a password that somebody chose"])
async def test_a_password_that_was_lost_is_made_anew(stage, lost):
    """Secret and etcd agree again once the Secret is healed; the old password opens nothing."""
    job = await stage.start("digits")
    before = stage.credentials(job)
    secret = stage.server.get(SECRETS, "team-a", "digits-master")
    if lost == "the secret":
        await stage.api.delete(SECRETS, "digits-master", namespace="team-a")
    else:
        chosen = {"etcd-own-password": base64.b64encode(b"12345").decode()} if "chose" in lost else {}
        data = {name: value for name, value in secret["data"].items() if name != "etcd-own-password"} | chosen
        stage.server.rewrite(SECRETS, secret, secret | {"data": data})
    stage.lead()
    await stage.objects.prepare(job)
    assert stage.credentials(job).password not in {before.password, "12345"}
    assert await commits(stage.store(job, stage.credentials(job)))
    assert not await commits(stage.store(job, before))


async def test_masters_that_run_keep_the_shared_password_when_jobs_become_separate(stage):
    """They name the shared user until their job starts anew; then each names its own (ADR 0165)."""
    own, stage.access = stage.access, replace(stage.access, user=ROOT.user, password=ROOT.password, is_separate=False)
    settings = AccountSettings(config=stage.config, is_separate=False)
    stage.accounts = JobAccounts(stage.api, settings, may_write=lambda: True, clock=lambda: stage.now_s)
    stage.lead()
    async with stage.accounts:
        job = await stage.start("digits")
        running, before = master_variables(job, stage.access), stage.credentials(job)
        assert before == ROOT
    stage.make_separate()
    async with stage.accounts:
        await stage.objects.restore([job], with_secrets=True)
        await stage.objects.restore([job], with_secrets=True)
        assert stage.access == own
        assert stage.credentials_of(job, running) == before
        assert stage.credentials(job).user != before.user
        assert await commits(stage.store(job, stage.credentials_of(job, running)))
        assert await commits(stage.store(job, stage.credentials(job)))


async def names_in_etcd(stage):
    async with asking(stage.config) as ask:
        users = set((await ask("Auth", "UserList", rpc.AuthUserListRequest())).users) - {"root"}
        found = await ask("KV", "Range", rpc.RangeRequest(key=b"\0", range_end=b"\0", keys_only=True))
        return users | {name for kv in found.kvs for name in kv.key.decode().split("/") if name.startswith("team-a.")}


async def test_what_a_deleted_job_had_goes_after_a_while(stage):
    """User, role, keys and record; a job made again under the name keeps its own, with a new password."""
    first = await stage.start("digits")
    assert await commits(stage.store(first, stage.credentials(first)))
    before = stage.credentials(first)
    stays = await stage.start("squares")
    await stage.end("digits")
    again = await stage.start("digits")
    assert stage.credentials(again) != before
    assert await commits(stage.store(again, stage.credentials(again)))
    await stage.accounts.sweep()
    stage.now_s += GONE_FOR_S - 1
    await stage.accounts.sweep()
    assert before.user in await names_in_etcd(stage)  # its masters have their grace
    stage.now_s += 2
    await stage.accounts.sweep()
    assert await names_in_etcd(stage) == {stage.credentials(again).user, stage.credentials(stays).user}
    assert await commits(stage.store(again, stage.credentials(again)))
    assert not await commits(stage.store(first, before))


@pytest.mark.parametrize("answer", [InvalidError("no"), UnauthorizedError("no", retry_after_s=1.0)])
async def test_a_job_that_cannot_be_read_is_not_gone(stage, answer):
    """Of a namespace that EDL may no longer read nothing is dropped; the others' sweep goes on (A11)."""
    job, gone = await stage.start("digits"), await stage.start("squares")
    await stage.end("squares")
    get = stage.api.get

    async def refusing(kind, name, **where):
        if kind == TRAINING_JOBS and name == "digits":
            raise answer
        return await get(kind, name, **where)

    stage.api.get = refusing
    await stage.accounts.sweep()
    stage.now_s += GONE_FOR_S
    await stage.accounts.sweep()
    assert await names_in_etcd(stage) == {stage.credentials(job).user}
    assert gone.name == "squares"


async def test_an_operator_that_no_longer_leads_writes_nothing(stage):
    """Its successor's password stands."""
    stage.leads = False
    with pytest.raises(NotLeadingError):
        await stage.start("digits")
    assert await names_in_etcd(stage) == set()


async def test_an_etcd_that_is_away_is_waited_for_once():
    """The next jobs are told at once: nobody waits for its deadline again and again."""
    stage = Stage(EtcdConfig(endpoints=("127.0.0.1:9",), credentials=ROOT))
    async with stage.accounts:
        for name, words in (("digits", "does not answer"), ("squares", "a moment ago")):
            with pytest.raises(TemporaryError, match=words):
                await stage.start(name)


async def test_jobs_that_share_a_user_wait_for_no_etcd():
    """The operator may not reach what masters reach; a job that is not recorded leaves its keys."""
    stage = Stage(EtcdConfig(endpoints=("127.0.0.1:9",)), is_separate=False)
    async with stage.accounts:
        await stage.start("digits")
    assert {one["metadata"]["name"] for one in stage.server.all(SECRETS)} > {"digits-master"}


async def test_an_etcd_without_users_starts_no_job_that_was_to_be_separate(etcd, open_store):
    """Better no job than one that seems to be separate; the words say what to do."""
    config = open_store(etcd, **UNHURRIED)._channel.config
    stage = Stage(config_of(config, ROOT))
    async with stage.accounts:
        with pytest.raises(TemporaryError, match="authentication"):
            await stage.start("digits")
        await enable_auth(config)
        await stage.objects.prepare(stage.job("digits"))
        assert await commits(stage.store(stage.job("digits"), stage.credentials(stage.job("digits"))))


async def test_jobs_that_share_a_user_start_and_their_keys_go(etcd, open_store):
    """Without a user that makes users; what may not be recorded is no reason not to start."""
    stage = Stage(open_store(etcd, **UNHURRIED)._channel.config, is_separate=False)
    async with stage.accounts:
        job = await stage.start("digits")
        store = stage.store(job, None)
        assert await commits(store)
        await stage.end("digits")
        await stage.accounts.sweep()
        stage.now_s += GONE_FOR_S
        await stage.accounts.sweep()
        store = stage.store(job, None)
        assert not (await store.read((store.keys.head,))).entries
        await store.close()


def test_the_words_of_the_settings_name_the_variable(tmp_path):
    """A user without its password, and a shared user beside it."""
    (tmp_path / "password").write_text("x\n")
    file = {module.ADMIN_PASSWORD_FILE: str(tmp_path / "password"), "EDL_ETCD_ENDPOINTS": "https://etcd"}
    read = module.read_account_settings(file | {module.ADMIN_USER: "root"})
    assert read.is_separate
    assert read.config.credentials == Credentials(user="root", password="x")
    assert module.read_account_settings({}) is None
    for environ, path in (
        (file, module.ADMIN_USER),
        ({module.ADMIN_USER: "root"}, module.ADMIN_PASSWORD_FILE),
        (file | {module.ADMIN_USER: "root", "EDL_ETCD_USER": "masters"}, "EDL_ETCD_USER"),
        ({"EDL_ETCD_ENDPOINTS": "ftp://x"}, "EDL_ETCD_ENDPOINTS"),
    ):
        with pytest.raises(module.InvalidSpecError) as refusal:
            module.read_account_settings(environ)
        assert refusal.value.path == path
