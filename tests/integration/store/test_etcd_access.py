"""etcd with users and with TLS."""

import asyncio
import datetime as dt
import ipaddress
from contextlib import aclosing

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from autoscaler.etcd_server.etcd_members import start_etcd
from master.errors import StoreAccessError, StoreUnavailableError
from master.store.etcd.etcd_config import Credentials, EtcdConfig, Tls
from master.store.etcd.etcd_store import EtcdStore
from master.store.etcd.stubs import rpc, stubs
from master.store.store_port import Committed, Put, Transaction
from tests.harness.free_ports import free_ports
from tests.harness.secured_etcd import UNHURRIED

pytestmark = pytest.mark.usefixtures("patient_connections")

ROOT = Credentials(user="root", password="a secret")


async def enable_users(store):
    """root, and a user who may do nothing."""

    async def ask(name, request):
        await store._channel.call(lambda channel: getattr(stubs.AuthStub(channel), name), request)

    await ask("UserAdd", rpc.AuthUserAddRequest(name=ROOT.user, password=ROOT.password))
    await ask("UserAdd", rpc.AuthUserAddRequest(name="nobody", password="x"))
    await ask("RoleAdd", rpc.AuthRoleAddRequest(name="root"))
    await ask("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="root", role="root"))
    await ask("AuthEnable", rpc.AuthEnableRequest())


@pytest.fixture
async def guarded(etcd_binary, tmp_path):
    """An etcd with users, whose tokens expire after two seconds."""
    async with start_etcd(etcd_binary, tmp_path / "etcd", options=["--auth-token-ttl=2"]) as cluster:
        store = EtcdStore(EtcdConfig(endpoints=cluster.endpoints, **UNHURRIED), "digits")
        await enable_users(store)
        await store.close()
        yield cluster


async def put(store, term, value):
    return await store.commit(Transaction(term=term, writes=(Put(store.keys.head, value),)))


async def test_token_that_expired_is_renewed(guarded, open_store):
    """Reads, writes, renewals and watches go on after the token's time."""
    store = open_store(guarded, credentials=ROOT, **UNHURRIED)
    leadership = await store.try_lead(holder="a", ttl_s=600)
    for number in range(2):
        await asyncio.sleep(3.5)
        assert isinstance(await put(store, leadership.term, b"%d" % number), Committed)
        await store.renew(leadership)
    await asyncio.sleep(3.5)
    async with asyncio.timeout(60), aclosing(store.watch(store.keys.head, after=leadership.term)) as events:
        assert [(await anext(events)).entry.value for _ in range(2)] == [b"0", b"1"]


@pytest.mark.parametrize(
    "credentials", [None, Credentials(user="root", password="wrong"), Credentials(user="nobody", password="x")]
)
async def test_user_without_the_right_is_refused(guarded, open_store, credentials):
    """No token, a wrong password and a missing role are told at once, for reads and watches, without the password."""
    store = open_store(guarded, credentials=credentials, **UNHURRIED)
    with pytest.raises(StoreAccessError) as refusal:
        await store.try_lead(holder="a", ttl_s=5)
    assert "wrong" not in str(refusal.value)
    with pytest.raises(StoreAccessError):
        async with asyncio.timeout(60), aclosing(store.watch(store.keys.head, after=1)) as events:
            await anext(events)


def make_certificate(folder, name, issuer=None):
    """PEM files NAME.crt and NAME.key; without an issuer it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer_key, issuer_name = issuer or (key, subject)
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key, subject


async def test_tls_with_client_certificates(etcd_binary, tmp_path):
    """Both sides prove who they are; without our certificate etcd does not answer."""
    ca = make_certificate(tmp_path, "ca")
    make_certificate(tmp_path, "server", ca)
    make_certificate(tmp_path, "client", ca)
    read = lambda name: (tmp_path / name).read_bytes()  # noqa: E731
    options = [
        f"--cert-file={tmp_path}/server.crt",
        f"--key-file={tmp_path}/server.key",
        f"--trusted-ca-file={tmp_path}/ca.crt",
        "--client-cert-auth",
    ]
    async with start_etcd(
        etcd_binary, tmp_path / "etcd", ports=free_ports(1), scheme="https", options=options
    ) as cluster:
        known = Tls(ca=read("ca.crt"), certificate=read("client.crt"), key=read("client.key"))
        for tls, is_served in ((known, True), (Tls(ca=read("ca.crt")), False), (None, False)):
            waits = UNHURRIED if is_served else {"read_budget_s": 2.0}
            store = EtcdStore(EtcdConfig(endpoints=cluster.endpoints, tls=tls, **waits), "digits")
            try:
                if is_served:
                    leadership = await store.try_lead(holder="a", ttl_s=600)
                    assert isinstance(await put(store, leadership.term, b"1"), Committed)
                    await store.renew(leadership)
                else:
                    with pytest.raises(StoreUnavailableError):
                        await store.read_leader()
            finally:
                await store.close()
