"""TLS and the shared secret of the data path: authentication of peers.

`EDL_TLS_DIR` holds ca.crt, tls.crt and tls.key, of one authority for the whole job; both sides show a certificate.
Host names are not compared: servers move between pods, and belonging to the job is what counts.  `EDL_TOKEN_FILE`
holds the secret; it never travels: each side proves that it knows it (`handshake`).
"""

from __future__ import annotations

import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_sdk.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Security settings of the data path.  Without token and TLS folder: plain TCP for everybody."""

    token: bytes = b""
    tls_folder: Path | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Security:
        """Raises UsageError when a file is named but cannot be read, or holds nothing."""
        token = b""
        if name := environment.get("EDL_TOKEN_FILE"):
            try:
                token = Path(name).read_bytes().strip()
            except OSError as error:
                raise UsageError(f"EDL_TOKEN_FILE={name}: {error.strerror}. Mount the job's secret there") from error
            if not token:  # an empty token would disable authentication
                raise UsageError(f"EDL_TOKEN_FILE={name} holds no secret: write one line of ASCII text into it")
        folder = environment.get("EDL_TLS_DIR")
        return cls(token=token, tls_folder=Path(folder) if folder else None)

    def server_context(self) -> ssl.SSLContext | None:
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def client_context(self) -> ssl.SSLContext | None:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def proof(self, role: str, nonce: bytes) -> str:
        """Proof of the secret for this nonce; the role keeps a proof from being replayed in another role."""
        return hmac.digest(self.token, role.encode() + nonce, "sha256").hex()

    def accepts(self, role: str, nonce: bytes, proof: str) -> bool:
        return hmac.compare_digest(self.proof(role, nonce).encode(), proof.encode(errors="replace"))

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext | None:
        if self.tls_folder is None:
            return None
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.tls_folder / "tls.crt", self.tls_folder / "tls.key")
            context.load_verify_locations(self.tls_folder / "ca.crt")
        except OSError as error:
            raise UsageError(
                f"EDL_TLS_DIR={self.tls_folder}: {error}. It needs ca.crt, tls.crt and tls.key in PEM form"
            ) from error
        return context
