"""Environment of a trainer or a parameter server, parsed; an empty variable counts as not set.

Not here: what each variable means (`environment_variables`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from master.api.host.unix_sockets import SCHEME, is_socket_address, socket_path
from master.api.identities import WhenUnreadable, parse_when_unreadable
from trainer_sdk.environment_variables import ENVIRONMENT_VERSION
from trainer_sdk.errors import UsageError

ROLES: Final = ("trainer", "server", "master")
_MOST: Final = 2**31 - 1  # of a whole number
_MOST_SECONDS: Final = 1e9  # as the master has it: thirty years


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The variables of a trainer or a parameter server, parsed."""

    job: str
    role: str
    name: str
    ordinal: int
    master: str  # host:port or unix:PATH; empty: the script runs alone
    grace_s: float
    tier: str
    checkpoint_uri: str
    checkpoint_start: str
    when_unreadable: WhenUnreadable
    token_file: str
    tls_dir: str
    is_group: bool
    global_batch: int  # 0: not set
    listen: str
    advertise: str

    @property
    def drain_s(self) -> float:
        """Seconds after SIGTERM that a trainer may continue (M7), and that a server waits for its buckets to move."""
        return self.grace_s - min(2.0, self.grace_s / 4)

    @property
    def token(self) -> str:
        """The job's shared secret; empty without a token file.  Raises UsageError if the file holds none."""
        if not self.token_file:
            return ""
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except OSError as error:
            raise UsageError(f"EDL_TOKEN_FILE: {self.token_file} cannot be read ({error.strerror})") from error
        except UnicodeDecodeError:
            token = ""
        if not token:
            raise UsageError(f"EDL_TOKEN_FILE: {self.token_file} holds no secret: one line of ASCII text")
        return token

    @property
    def tls_folder(self) -> Path | None:
        return Path(self.tls_dir) if self.tls_dir else None

    def check_files(self) -> None:
        """Raises UsageError, naming the variable, when the secret or a certificate cannot be read."""
        _ = self.token
        for name in ("ca.crt", "tls.crt", "tls.key") if self.tls_dir else ():
            try:
                (Path(self.tls_dir) / name).read_bytes()
            except OSError as error:
                raise UsageError(f"EDL_TLS_DIR: {self.tls_dir}/{name} cannot be read ({error.strerror})") from error


def parse_environment(variables: Mapping[str, str], *, role: str = "trainer") -> Environment:
    """Parses the variables.  Raises UsageError naming the first that is wrong."""
    version = _whole(variables, "EDL_ENV_VERSION", default=ENVIRONMENT_VERSION)
    if version != ENVIRONMENT_VERSION:
        raise UsageError(
            f"EDL_ENV_VERSION: {version}, but this EDL reads version {ENVIRONMENT_VERSION} of the environment. "
            "Run the same release of EDL in the training image and on the cluster"
        )
    job = variables.get("EDL_JOB") or "local"
    role = variables.get("EDL_ROLE") or role
    if role not in ROLES:
        raise UsageError(f"EDL_ROLE: {role!r} is none of {', '.join(ROLES)}")
    ordinal = _whole(variables, "EDL_ORDINAL", default=0)
    return Environment(
        job=job,
        role=role,
        name=variables.get("EDL_NAME") or f"{job}-{role}-{ordinal}",
        ordinal=ordinal,
        master=_address(variables, "EDL_MASTER"),
        grace_s=_seconds(variables, "EDL_GRACE_S", default=30.0),
        tier=variables.get("EDL_TIER") or "core",
        checkpoint_uri=variables.get("EDL_CHECKPOINT_URI") or "",
        checkpoint_start=variables.get("EDL_CHECKPOINT_START") or "",
        when_unreadable=_when_unreadable(variables),
        token_file=variables.get("EDL_TOKEN_FILE") or "",
        tls_dir=variables.get("EDL_TLS_DIR") or "",
        is_group=_whole(variables, "EDL_GROUP", default=0, most=1) == 1,
        global_batch=_whole(variables, "EDL_GLOBAL_BATCH", default=0),
        listen=variables.get("EDL_LISTEN") or "",
        advertise=variables.get("EDL_ADVERTISE") or "",
    )


def _when_unreadable(variables: Mapping[str, str]) -> WhenUnreadable:
    try:
        return parse_when_unreadable(variables.get("EDL_WHEN_UNREADABLE") or "")
    except ValueError as error:
        raise UsageError(f"EDL_WHEN_UNREADABLE: {error}") from error


def _address(variables: Mapping[str, str], name: str) -> str:
    text = variables.get(name) or ""
    if is_socket_address(text):
        return _socket_address(name, text)
    host, _, port = text.rpartition(":")
    if text and not (host and _is_whole(port) and 0 < int(port) <= 65535):
        raise UsageError(f"{name}: {text!r} is not host:port")
    return text


def _socket_address(name: str, text: str) -> str:
    try:
        return f"{SCHEME}{socket_path(text)}"
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error


def _whole(variables: Mapping[str, str], name: str, *, default: int, most: int = _MOST) -> int:
    text = variables.get(name) or str(default)
    if not _is_whole(text) or int(text) > most:
        raise UsageError(f"{name}: {text!r} is not an integer from 0 to {most}")
    return int(text)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and int(text) <= _MOST


def _seconds(variables: Mapping[str, str], name: str, *, default: float) -> float:
    text = variables.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < _MOST_SECONDS:
        raise UsageError(f"{name}: {text!r} is not a number of seconds from 0 to below {_MOST_SECONDS:g}")
    return value
