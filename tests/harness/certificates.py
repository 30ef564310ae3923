"""Certificate authorities for tests: that of a Kubernetes control plane, and that of a job.

Kubernetes reads the identity from the certificate: the common name is the user, the organisations are the groups.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = dt.timedelta(days=30)
CLOCK_SKEW: Final = dt.timedelta(minutes=5)
SIGNING_KEY_BITS: Final = 2048

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, in files."""

    certificate: Path
    key: Path


class ClusterAuthority:
    """Signs the certificates of a cluster's components, which trust `certificate`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-cluster")])
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str, user: str, *, groups: Sequence[str] = (), addresses: Sequence[str] = ()) -> Pair:
        """A pair in the folder, for a client and, at `addresses` (IPs or names), for a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            self._builder(subject, key)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        )
        if addresses:
            names = [_general_name(address) for address in addresses]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair = Pair(certificate=self._folder / f"{name}.crt", key=self._folder / f"{name}.key")
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        _write_private(pair.key, key)
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            _begin(subject, key, issuer=self._name)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer_id, critical=False)
        )


class JobAuthority:
    """A job's certificate authority, with the same extensions as the operator's."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key, is_authority=True)

    def issue(self, folder: Path) -> None:
        """Creates the folder with ca.crt, tls.crt and tls.key, as a pod has them in EDL_TLS_DIR."""
        folder.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        (folder / "ca.crt").write_bytes(self._certificate)
        (folder / "tls.crt").write_bytes(self._sign(subject, key, is_authority=False))
        _write_private(folder / "tls.key", key)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        builder = (
            _begin(subject, key, issuer=self._name)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([_general_name("127.0.0.1")]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _begin(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, issuer: x509.Name) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def make_signing_key(folder: Path) -> Pair:
    """The key that signs ServiceAccount tokens; as `certificate` its public half, by which they are checked."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=SIGNING_KEY_BITS)
    pair = Pair(certificate=folder / "service-accounts.pub", key=folder / "service-accounts.key")
    pair.certificate.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    _write_private(pair.key, key)
    return pair


def _write_private(path: Path, key: PrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
