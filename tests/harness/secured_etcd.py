"""An etcd with TLS and users, as the chart runs it, but with cheap password hashes."""

from contextlib import asynccontextmanager

from autoscaler.etcd_server.etcd_members import start_etcd
from master.store.etcd.etcd_accounts import EtcdAccounts
from master.store.etcd.etcd_channel import EtcdChannel
from master.store.etcd.etcd_config import Credentials, EtcdConfig, Tls
from master.store.etcd.stubs import rpc, stubs
from tests.harness.certificates import JobAuthority
from tests.harness.free_ports import free_ports

ROOT = Credentials(user="root", password="a secret")
UNHURRIED = {"call_deadline_s": 60.0, "read_budget_s": 120.0}
"""Client settings with long deadlines, for an etcd without injected faults on a busy machine."""


@asynccontextmanager
async def etcd_with_users(binary, folder, *options):
    """The configuration of an etcd that requires users, with root's credentials."""
    identity = folder / "identity"
    folder.mkdir(exist_ok=True)
    JobAuthority("etcd").issue(identity)
    said = [f"--cert-file={identity}/tls.crt", f"--key-file={identity}/tls.key", "--bcrypt-cost=4", *options]
    async with start_etcd(binary, folder / "etcd", ports=free_ports(1), scheme="https", options=said) as cluster:
        config = EtcdConfig(
            endpoints=cluster.endpoints, tls=Tls(ca=(identity / "ca.crt").read_bytes()), credentials=ROOT, **UNHURRIED
        )
        await enable_auth(config)
        yield config


async def enable_auth(config):
    """Gives root its password and turns authentication on."""
    async with asking(config, credentials=None) as ask:
        await ask("Auth", "UserAdd", rpc.AuthUserAddRequest(name=ROOT.user, password=ROOT.password))
        await ask("Auth", "RoleAdd", rpc.AuthRoleAddRequest(name="root"))
        await ask("Auth", "UserGrantRole", rpc.AuthUserGrantRoleRequest(user="root", role="root"))
        await ask("Auth", "AuthEnable", rpc.AuthEnableRequest())


def config_of(config, credentials):
    """The same configuration with other credentials."""
    return EtcdConfig(endpoints=config.endpoints, tls=config.tls, credentials=credentials, **UNHURRIED)


@asynccontextmanager
async def asking(config, *, credentials=ROOT):
    """`await ask(service, method, request)`, raw."""
    channel = EtcdChannel(config_of(config, credentials))

    async def ask(service, method, request):
        return await channel.call(lambda grpc: getattr(getattr(stubs, f"{service}Stub")(grpc), method), request)

    try:
        yield ask
    finally:
        await channel.close()


@asynccontextmanager
async def accounts_of(config, *, cluster="c1", is_separate=True):
    """As the operator has them."""
    accounts = EtcdAccounts(config, cluster=cluster, is_separate=is_separate)
    try:
        yield accounts
    finally:
        await accounts.close()
