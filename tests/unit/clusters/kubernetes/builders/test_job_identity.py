"""A job's certificates: they serve, only within the job, and are renewed before they end."""

import base64
import ssl
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from autoscaler.clusters.kubernetes.builders.job_identity import (
    build_secrets,
    is_renewal_due,
    issue_identity,
    parse_identity,
    renew_identity,
)
from tests.unit.clusters.kubernetes.builders.secret_files import NOW, write_files
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, kube_job

JOB = kube_job()


def shake_hands(server_folder, client_folder, host):
    """One TLS handshake in memory, both sides showing a certificate.  Raises ssl.SSLError."""
    sides = []
    for folder, purpose in ((client_folder, ssl.Purpose.SERVER_AUTH), (server_folder, ssl.Purpose.CLIENT_AUTH)):
        context = ssl.create_default_context(purpose, cafile=folder / "ca.crt")
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.verify_mode = ssl.CERT_REQUIRED
        sides.append((context, ssl.MemoryBIO(), ssl.MemoryBIO()))
    (client, c_in, c_out), (server, s_in, s_out) = sides
    ends = [
        client.wrap_bio(c_in, c_out, server_hostname=host),
        server.wrap_bio(s_in, s_out, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
            s_in.write(c_out.read())
            c_in.write(s_out.read())


def folders(tmp_path, identity, name):
    _, member, master = build_secrets(JOB, identity, SETTINGS.etcd)
    return write_files(tmp_path / f"{name}-member", member), write_files(tmp_path / f"{name}-master", master)


def test_members_and_masters_trust_one_another_and_nobody_else(tmp_path):
    """Mutual TLS within the job; another job's certificate, and a member in the master's place, are refused."""
    member, master = folders(tmp_path, issue_identity(JOB, datetime.now(UTC)), "own")
    stranger, _ = folders(tmp_path, issue_identity(JOB, datetime.now(UTC)), "other")
    shake_hands(master, member, "digits-master.team-a.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(master, stranger, "digits-master.team-a.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(member, member, "digits-master.team-a.svc")


def test_old_and_renewed_certificates_work_together(tmp_path):
    """The authority stays: pods that have the new files talk with pods that have not."""
    first = issue_identity(JOB, datetime.now(UTC) - timedelta(days=250))
    second = renew_identity(first, JOB, datetime.now(UTC))
    old_member, old_master = folders(tmp_path, first, "old")
    new_member, new_master = folders(tmp_path, second, "new")
    shake_hands(new_master, old_member, "digits-master.team-a.svc")
    shake_hands(old_master, new_member, "digits-master.team-a.svc")
    assert second.token == first.token


@pytest.mark.parametrize(("days", "due"), [(0, False), (243, False), (244, True), (364, True), (400, True)])
def test_renewal_is_due_when_a_third_is_left(days, due):
    """Four months for an operator that is down."""
    assert is_renewal_due(issue_identity(JOB, NOW), NOW + timedelta(days=days)) is due


def test_authority_is_renewed_when_it_is_old_too():
    """Ten years hence; the job's shared secret stays."""
    first = issue_identity(JOB, NOW)
    later = NOW + timedelta(days=3000)
    second = renew_identity(first, JOB, later)
    assert second.authority != first.authority
    assert not is_renewal_due(second, later)
    assert second.token == first.token


def test_identity_is_read_back_from_its_secrets():
    """What a new leader finds is what was issued."""
    identity = issue_identity(JOB, NOW)
    authority, member, master = build_secrets(JOB, identity, SETTINGS.etcd)
    assert parse_identity(authority, member, master) == identity
    assert "ca.key" not in member["data"]
    assert "ca.key" not in master["data"]
    assert "etcd-ca.crt" in master["data"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda secrets: secrets[1]["data"].pop("tls.key"),
        lambda secrets: secrets[0].pop("data"),
        lambda secrets: secrets[1]["data"].update({"tls.crt": "bm90IGEgY2VydA=="}),
        lambda secrets: secrets[1]["data"].update({"tls.crt": "not base64"}),
        lambda secrets: secrets[2]["data"].update({"token": "b3RoZXI="}),
        lambda secrets: [secret["data"].update({"token": "b3Ro" * 10_000}) for secret in secrets[1:]],
        lambda secrets: secrets[1]["data"].update(
            build_secrets(JOB, issue_identity(JOB, NOW), SETTINGS.etcd)[1]["data"]
        ),
    ],
)
def test_secrets_that_do_not_belong_together_are_no_identity(spoil):
    """A crash between two writes, or somebody's edit: it is issued anew, whole."""
    secrets = build_secrets(JOB, issue_identity(JOB, NOW), SETTINGS.etcd)
    spoil(secrets)
    assert parse_identity(*secrets) is None


def rsa_pem(p, q):
    """A private key of two primes, as PKCS1 writes it; the standard form needs no library that tests them."""
    e, d = 65537, pow(65537, -1, (p - 1) * (q - 1))
    numbers = (0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))

    def der(tag, content):
        size = len(content)
        length = bytes([size]) if size < 128 else b"\x83" + size.to_bytes(3)
        return tag + length + content

    body = der(b"\x30", b"".join(der(b"\x02", n.to_bytes(n.bit_length() // 8 + 1)) for n in numbers))
    return b"-----BEGIN RSA PRIVATE KEY-----\n" + base64.encodebytes(body) + b"-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize(("whose", "file"), [(0, "ca.key"), (1, "tls.key"), (2, "tls.key")])
def test_key_that_takes_minutes_to_read_is_not_read(whose, file, monkeypatch):
    """A tenant wrote it into its own job's Secret: the operator's loop stands still for nobody's key (A11)."""
    secrets = build_secrets(JOB, issue_identity(JOB, NOW), SETTINGS.etcd)
    huge = rsa_pem(2**4423 - 1, 2**4253 - 1)  # 8,676 bits: half a minute
    secrets[whose]["data"][file] = base64.b64encode(huge).decode()
    read = []
    load = serialization.load_pem_private_key
    monkeypatch.setattr(
        serialization, "load_pem_private_key", lambda pem, password: read.append(pem) or load(pem, password)
    )
    assert parse_identity(*secrets) is None
    assert huge not in read


@pytest.mark.parametrize(("whose", "file"), [(0, "ca.key"), (1, "tls.key"), (2, "tls.key")])
def test_key_of_another_kind_is_no_identity(whose, file):
    """It is short enough to be read; certificates are signed on no curve but that of `issue`."""
    secrets = build_secrets(JOB, issue_identity(JOB, NOW), SETTINGS.etcd)
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    secrets[whose]["data"][file] = base64.b64encode(other).decode()
    assert parse_identity(*secrets) is None


def test_secrets_are_not_shown():
    """Neither key nor token nor password reaches a log by way of a repr."""
    identity = issue_identity(JOB, NOW)
    etcd = replace(SETTINGS.etcd, password="hunter2", key="KEY-PEM")
    shown = repr(identity) + repr(etcd)
    assert identity.token not in shown
    assert "hunter2" not in shown
    assert "PRIVATE" not in shown
    assert "KEY-PEM" not in shown
