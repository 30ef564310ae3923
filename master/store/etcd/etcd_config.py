"""Settings for etcd: endpoints, certificates and user, parsed once from the environment.

Passwords come from a file, never from an argument, a URL or a plain variable that a process list or a bug report
shows.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from master.api.host.unix_sockets import SCHEME, is_socket_address, socket_path
from master.errors import InvalidSettingError

DEFAULT_PORT: Final = 2379
ENDPOINTS: Final = "EDL_ETCD_ENDPOINTS"
USER: Final = "EDL_ETCD_USER"
PASSWORD_FILE: Final = "EDL_ETCD_PASSWORD_FILE"  # noqa: S105  # the variable's name, no password
CA_FILE: Final = "EDL_ETCD_CA_FILE"
CERT_FILE: Final = "EDL_ETCD_CERT_FILE"
KEY_FILE: Final = "EDL_ETCD_KEY_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM bytes.  `ca` None: the system's roots.  `certificate` and `key`: ours, both or neither."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """Endpoints as `host:port` or `unix:PATH`, members of one cluster; deadlines of one attempt and of a whole read."""

    endpoints: tuple[str, ...]
    tls: Tls | None = None
    credentials: Credentials | None = None
    call_deadline_s: float = 1.0  # with 1 s the longest gap over a leader's kill was 2 s, with 5 s it was 5 s
    read_budget_s: float = 5.0

    @classmethod
    def try_from_environment(cls, environ: Mapping[str, str]) -> EtcdConfig | None:
        """None: no endpoints are named.  Raises InvalidSettingError with the variable's name."""
        text = environ.get(ENDPOINTS, "").strip()
        if not text:
            return None
        schemes, endpoints = parse_endpoints(text)
        tls = _read_tls(environ)
        if schemes == {"http"} and tls is not None:
            raise InvalidSettingError(
                ENDPOINTS, "http:// cannot be combined with certificate files", hint="Use https://"
            )
        if schemes == {"https"} and tls is None:
            tls = Tls()
        return cls(endpoints=endpoints, tls=tls, credentials=_read_credentials(environ))


def parse_endpoints(text: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """`http://h1:2379,h2` -> the schemes named, and `host:port` or `unix:PATH` of each.  Raises InvalidSettingError."""
    parsed = [_parse_endpoint(part.strip()) for part in text.split(",")]
    schemes = frozenset(scheme for scheme, _ in parsed if scheme)
    if len(schemes) > 1:
        raise InvalidSettingError(ENDPOINTS, "mixes http and https", hint="Use one scheme for all members")
    return schemes, tuple(dict.fromkeys(endpoint for _, endpoint in parsed))


def _parse_endpoint(text: str) -> tuple[str, str]:
    if is_socket_address(text):
        return "", _parse_socket(text)
    scheme, separator, _ = text.rpartition("://")
    hint = "Write host:port or http(s)://host:port, with commas between"
    try:
        url = urlsplit(text if separator else f"//{text}")
        host, port = url.hostname, url.port or DEFAULT_PORT
    except ValueError:
        raise InvalidSettingError(ENDPOINTS, "contains an invalid address", hint=hint) from None
    if url.username is not None or url.password is not None:
        raise InvalidSettingError(ENDPOINTS, "contains a user or password", hint=f"Use {USER} and {PASSWORD_FILE}")
    if not host or scheme not in {"", "http", "https"} or url.path not in {"", "/"} or url.query:
        raise InvalidSettingError(ENDPOINTS, f"{text!r} is not an address", hint=hint)
    return scheme, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_socket(text: str) -> str:
    try:
        return f"{SCHEME}{socket_path(text)}"
    except ValueError as error:
        raise InvalidSettingError(ENDPOINTS, str(error), hint="Write unix:/a/path, short enough") from None


def grpc_target(endpoint: str) -> str:
    """`127.0.0.1:2379` -> `ipv4:127.0.0.1:2379`, a socket as it is; names are resolved at each connection."""
    if is_socket_address(endpoint):
        return endpoint
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return f"ipv{ipaddress.ip_address(host).version}:{endpoint}"
    except ValueError:
        return f"dns:///{endpoint}"


def _read_tls(environ: Mapping[str, str]) -> Tls | None:
    ca, certificate, key = (_read_file(environ, name) for name in (CA_FILE, CERT_FILE, KEY_FILE))
    if (certificate is None) != (key is None):
        missing = KEY_FILE if key is None else CERT_FILE
        raise InvalidSettingError(missing, "is missing", hint=f"{CERT_FILE} and {KEY_FILE} go together")
    return None if ca is None and certificate is None else Tls(ca=ca, certificate=certificate, key=key)


def _read_credentials(environ: Mapping[str, str]) -> Credentials | None:
    user, password = environ.get(USER), _read_file(environ, PASSWORD_FILE)
    if user and password is not None:
        return Credentials(user=user, password=password.decode().rstrip("\r\n"))
    if user or password is not None:
        missing = PASSWORD_FILE if user else USER
        raise InvalidSettingError(missing, "is missing", hint=f"{USER} and {PASSWORD_FILE} go together")
    return None


def _read_file(environ: Mapping[str, str], name: str) -> bytes | None:
    path = environ.get(name)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidSettingError(name, f"{path}: {error.strerror}", hint="Name a readable file") from error
