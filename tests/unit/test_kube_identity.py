"""A job's certificates: they serve, only within the job, and are renewed before they end."""

import ssl
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.clusters.kubernetes.building.identity import is_due, issue, read_identity, renewed, secrets_of
from tests.unit.kube_identity import NOW, write_files
from tests.unit.kube_objects import SETTINGS, kube_job

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
    _, member, master = secrets_of(JOB, identity, SETTINGS.etcd)
    return write_files(tmp_path / f"{name}-member", member), write_files(tmp_path / f"{name}-master", master)


def test_members_and_masters_trust_one_another_and_nobody_else(tmp_path):
    """Mutual TLS within the job; another job's certificate, and a member in the master's place, are refused."""
    member, master = folders(tmp_path, issue(JOB, datetime.now(UTC)), "own")
    stranger, _ = folders(tmp_path, issue(JOB, datetime.now(UTC)), "other")
    shake_hands(master, member, "digits-master.team-a.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(master, stranger, "digits-master.team-a.svc")
    with pytest.raises(ssl.SSLError):
        shake_hands(member, member, "digits-master.team-a.svc")


def test_old_and_renewed_certificates_work_together(tmp_path):
    """The authority stays: pods that have the new files talk with pods that have not."""
    first = issue(JOB, datetime.now(UTC) - timedelta(days=250))
    second = renewed(first, JOB, datetime.now(UTC))
    old_member, old_master = folders(tmp_path, first, "old")
    new_member, new_master = folders(tmp_path, second, "new")
    shake_hands(new_master, old_member, "digits-master.team-a.svc")
    shake_hands(old_master, new_member, "digits-master.team-a.svc")
    assert second.token == first.token


@pytest.mark.parametrize(("days", "due"), [(0, False), (243, False), (244, True), (364, True), (400, True)])
def test_renewal_is_due_when_a_third_is_left(days, due):
    """Four months for an operator that is down."""
    assert is_due(issue(JOB, NOW), NOW + timedelta(days=days)) is due


def test_authority_is_renewed_when_it_is_old_too():
    """Ten years hence; the job's shared secret stays."""
    first = issue(JOB, NOW)
    later = NOW + timedelta(days=3000)
    second = renewed(first, JOB, later)
    assert second.authority != first.authority
    assert not is_due(second, later)
    assert second.token == first.token


def test_identity_is_read_back_from_its_secrets():
    """What a new leader finds is what was issued."""
    identity = issue(JOB, NOW)
    authority, member, master = secrets_of(JOB, identity, SETTINGS.etcd)
    assert read_identity(authority, member, master) == identity
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
        lambda secrets: secrets[1]["data"].update(secrets_of(JOB, issue(JOB, NOW), SETTINGS.etcd)[1]["data"]),
    ],
)
def test_secrets_that_do_not_belong_together_are_no_identity(spoil):
    """A crash between two writes, or somebody's edit: it is issued anew, whole."""
    secrets = secrets_of(JOB, issue(JOB, NOW), SETTINGS.etcd)
    spoil(secrets)
    assert read_identity(*secrets) is None


def test_secrets_are_not_shown():
    """Neither key nor token nor password reaches a log by way of a repr."""
    identity = issue(JOB, NOW)
    etcd = replace(SETTINGS.etcd, password="hunter2", key="KEY-PEM")
    shown = repr(identity) + repr(etcd)
    assert identity.token not in shown
    assert "hunter2" not in shown
    assert "PRIVATE" not in shown
    assert "KEY-PEM" not in shown
