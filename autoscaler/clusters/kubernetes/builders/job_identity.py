"""Credentials of a job: a shared token and certificates of the job's own authority, in three Secrets.

`JOB-authority` holds the authority's key, and no pod mounts it.  `JOB-member` holds what trainers and servers present,
`JOB-master` what masters present, to members and to etcd.  Only the master's certificate names the master's host, so
that no member can impersonate it.

*Rotation.*  Certificates are valid for a year and are renewed when a third of it is left.  The authority is valid for
ten years and keeps its key, so that old and new certificates work beside each other.  The kubelet updates the files in
running pods; a process reads them at its next connection, a master at its next start.  The token lasts for the job's
life.

This is the only module of `builders` that draws random numbers; the time is an argument.
"""

from __future__ import annotations

import base64
import re
import secrets
from binascii import Error as BadBase64Error
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from autoscaler.clusters.kubernetes.builders.build_settings import EtcdAccess
from autoscaler.clusters.kubernetes.builders.member_pods import owner_reference
from autoscaler.clusters.kubernetes.builders.pod_environment import (
    ETCD_KEYS,
    OWN_PASSWORD,
    SHARED_PASSWORD,
    TOKEN,
    password_file,
)
from autoscaler.clusters.kubernetes.objects.fields import Raw, part
from autoscaler.clusters.kubernetes.objects.labels import job_labels
from autoscaler.clusters.kubernetes.objects.names import (
    authority_secret,
    master_host,
    master_name,
    master_secret,
    member_secret,
)
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob

AUTHORITY_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=365)
SKEW: Final = timedelta(minutes=5)
"""A node's clock may be behind by this much."""

_LONGEST_CERTIFICATE: Final = 4096
_LONGEST_KEY: Final = 512
"""Bytes of PEM; issued ones have some 800 and 241.  Reading a key of tens of kilobytes takes hours."""

_LONGEST_TOKEN: Final = 256
"""Characters; issued tokens have 43.  The operator keeps one per job, and a Secret may hold a megabyte."""

_PASSWORD_BYTES: Final = 32
_PASSWORD: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of that many bytes in URL-safe base64; anything else is a user's


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """All credentials of one job."""

    authority: KeyPair
    master: KeyPair
    member: KeyPair
    token: str = field(repr=False)


def issue_identity(job: KubeJob, now: datetime) -> JobIdentity:
    """Return new credentials.  `now` has a time zone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{job.name} authority")
    builder = _builder(name, name, key.public_key(), now, AUTHORITY_LIFE, is_authority=True)
    certificate = builder.sign(key, hashes.SHA256())
    return _with_leaves(_pem(certificate, key), job, now, token=secrets.token_urlsafe(32))


def renew_identity(identity: JobIdentity, job: KubeJob, now: datetime) -> JobIdentity:
    """Return new certificates from the same authority; from a new one only if the authority is old too."""
    if _is_old(identity.authority, AUTHORITY_LIFE, now):
        return replace(issue_identity(job, now), token=identity.token)
    return _with_leaves(identity.authority, job, now, token=identity.token)


def is_renewal_due(identity: JobIdentity, now: datetime) -> bool:
    """True if a third or less of a certificate's validity is left."""
    is_leaf_old = any(_is_old(pair, LEAF_LIFE, now) for pair in (identity.master, identity.member))
    return is_leaf_old or _is_old(identity.authority, AUTHORITY_LIFE, now)


def parse_identity(authority: Raw, member: Raw, master: Raw) -> JobIdentity | None:
    """Return the credentials in the three Secrets; None if a part is missing or invalid.

    Users may have edited these Secrets.  So values that are longer than issued ones, or of another type, are refused
    unread: checking an RSA key's primes would block the operator's event loop.
    """
    try:
        identity = JobIdentity(
            authority=KeyPair(certificate=_of(authority, "ca.crt"), key=_of(authority, "ca.key")),
            member=KeyPair(certificate=_of(member, "tls.crt"), key=_of(member, "tls.key")),
            master=KeyPair(certificate=_of(master, "tls.crt"), key=_of(master, "tls.key")),
            token=_of(member, TOKEN).decode("ascii"),
        )
        signer = _certificate_of(identity.authority)
        for pair in (identity.authority, identity.member, identity.master):
            _certificate_of(pair).verify_directly_issued_by(signer)
            _key_of(pair)
    except (KeyError, ValueError, TypeError, BadBase64Error, InvalidSignature):
        return None
    is_ours = 0 < len(identity.token) <= _LONGEST_TOKEN
    is_whole = is_ours and _of(master, TOKEN) == identity.token.encode()
    return identity if is_whole else None


def etcd_password_of(master: Raw | None) -> str:
    """Return the job's own etcd password from the master's Secret, or a new one if there is no valid one."""
    with suppress(KeyError, ValueError, TypeError, BadBase64Error):
        password = _of(master or {}, OWN_PASSWORD).decode("ascii")
        if _PASSWORD.fullmatch(password):
            return password
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def build_secrets(
    job: KubeJob, identity: JobIdentity, etcd: EtcdAccess, current: Raw | None = None
) -> tuple[dict[str, Any], ...]:
    """Return the bodies of the three Secrets, the authority's first: without it members' certificates could not be
    renewed.

    `current`: the master's Secret as it is.  Files of etcd that `etcd` no longer contains stay in it, because running
    masters use them.

    """
    known = {"ca.crt": identity.authority.certificate, TOKEN: identity.token.encode()}
    etcd_files = {file: getattr(etcd, name) for name, file in ETCD_KEYS.items()} | {password_file(etcd): etcd.password}
    files = _etcd_files(current or {}) | {file: content.encode() for file, content in etcd_files.items() if content}
    return (
        _secret(job, authority_secret(job.name), {"ca.crt": known["ca.crt"], "ca.key": identity.authority.key}),
        _secret(job, member_secret(job.name), known | _files(identity.member)),
        _secret(job, master_secret(job.name), known | _files(identity.master) | files),
    )


def _with_leaves(authority: KeyPair, job: KubeJob, now: datetime, *, token: str) -> JobIdentity:
    hosts = [master_host(job.namespace, job.name), f"{master_name(job.name)}.{job.namespace}", master_name(job.name)]
    return JobIdentity(
        authority=authority,
        master=_leaf(authority, f"{job.name} master", now, hosts=hosts),
        member=_leaf(authority, f"{job.name} member", now, hosts=[]),
        token=token,
    )


def _leaf(authority: KeyPair, name: str, now: datetime, *, hosts: list[str]) -> KeyPair:
    signer, signing_key = _certificate_of(authority), _key_of(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), signer.subject, key.public_key(), now, LEAF_LIFE, is_authority=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
    ).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return _pem(builder.sign(signing_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _is_old(pair: KeyPair, life: timedelta, now: datetime) -> bool:
    return _certificate_of(pair).not_valid_after_utc - now <= life / 3


def _certificate_of(pair: KeyPair) -> x509.Certificate:
    """Return the certificate.  Raises ValueError or TypeError for one that `issue_identity` cannot have made."""
    if len(pair.certificate) > _LONGEST_CERTIFICATE:
        raise ValueError(f"a certificate of {len(pair.certificate)} bytes")
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    if not isinstance(certificate.public_key(), ec.EllipticCurvePublicKey):
        raise TypeError("a certificate for a key of another kind")
    return certificate


def _key_of(pair: KeyPair) -> ec.EllipticCurvePrivateKey:
    """Return the key.  Raises ValueError or TypeError for one that `issue_identity` cannot have made."""
    if len(pair.key) > _LONGEST_KEY:
        raise ValueError(f"a key of {len(pair.key)} bytes")
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("a key of another kind")
    return key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    return KeyPair(
        certificate=certificate.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _etcd_files(master: Raw) -> dict[str, bytes]:
    found = {}
    for file in (*ETCD_KEYS.values(), SHARED_PASSWORD, OWN_PASSWORD):
        with suppress(KeyError, ValueError, TypeError, BadBase64Error):
            found[file] = _of(master, file)
    return found


def _files(pair: KeyPair) -> dict[str, bytes]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def _secret(job: KubeJob, name: str, files: dict[str, bytes]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": job_labels(job.name),
            "ownerReferences": [owner_reference(job)],
        },
        "type": "Opaque",
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }


def _of(secret: Raw, file: str) -> bytes:
    return base64.b64decode(part(secret, "data")[file], validate=True)
