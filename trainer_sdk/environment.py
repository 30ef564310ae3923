"""Environment variables of a job's processes: the published list, version 1.

The operator, or any other program that starts a trainer or a parameter server, sets these variables; a process reads no
others.  EDL_ENV_VERSION is raised when a variable changes its meaning or a new one must not be ignored; a process
refuses a version that it does not know.  A variable that may be ignored can be added within a version.  An empty
variable counts as not set.

`docs/environment.md` is made from `VARIABLES` (`python -m trainer_sdk.environment`), and a test holds it to that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from master.api.host.unix_sockets import SCHEME, is_socket_address, socket_path
from master.api.identities import WhenUnreadable, parse_when_unreadable
from trainer_sdk.errors import UsageError

ENVIRONMENT_VERSION: Final = 1
ROLES: Final = ("trainer", "server", "master")
_MOST: Final = 2**31 - 1  # of a whole number
_MOST_SECONDS: Final = 1e9  # as the master has it: thirty years


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    name: str
    readers: str  # who reads it
    meaning: str
    default: str = ""  # as readers see it; empty: none
    example: str = ""


VARIABLES: Final = (
    Variable(
        name="EDL_ENV_VERSION",
        readers="all",
        meaning="version of this list; another one is refused",
        default="1",
        example="1",
    ),
    Variable(
        name="EDL_JOB",
        readers="all",
        meaning="name of the job; both ends of every connection must agree on it",
        default="local",
        example="digits",
    ),
    Variable(name="EDL_ROLE", readers="all", meaning="trainer, server or master", default="trainer", example="trainer"),
    Variable(
        name="EDL_NAME",
        readers="all",
        meaning="name of the pod, unique in its job",
        default="JOB-ROLE-ORDINAL",
        example="digits-trainer-2",
    ),
    Variable(
        name="EDL_ORDINAL",
        readers="trainer, server",
        meaning="number of the pod within its role; not its rank",
        default="0",
        example="2",
    ),
    Variable(
        name="EDL_MASTER",
        readers="trainer, server",
        meaning="the job's master, host:port or unix:PATH; a script without it starts a master of its own",
        default="none",
        example="127.0.0.1:7070",
    ),
    Variable(
        name="EDL_GRACE_S",
        readers="trainer, server",
        meaning="seconds between SIGTERM and SIGKILL, 0 for none; a process ends min(2 s, a quarter of it) earlier",
        default="30",
        example="10",
    ),
    Variable(
        name="EDL_TIER",
        readers="trainer",
        meaning="core or surplus, fixed when the pod is created; for the script's information",
        default="core",
        example="surplus",
    ),
    Variable(
        name="EDL_CHECKPOINT_URI",
        readers="trainer, server, master",
        meaning="folder of the job's checkpoints: a path, file:///path, or a URI that fsspec knows",
        default="none: nothing is kept",
        example="file:///var/lib/edl/digits",
    ),
    Variable(
        name="EDL_CHECKPOINT_EVERY_S",
        readers="master",
        meaning="seconds between checkpoints",
        default="60",
        example="60",
    ),
    Variable(
        name="EDL_CHECKPOINT_START",
        readers="master, a script that runs alone",
        meaning="checkpoint to start from if the folder cannot be read: a manifest's id, or `fresh`",
        default="none: HEAD in the folder decides",
        example="000001-0000000012-000007-5f3a9c21",
    ),
    Variable(
        name="EDL_WHEN_UNREADABLE",
        readers="master, a script that runs alone",
        meaning="Fail, or FallBack: resume from the newest intact checkpoint if the last cannot be read",
        default="Fail",
        example="FallBack",
    ),
    Variable(
        name="EDL_TOKEN_FILE",
        readers="all",
        meaning="file with the job's shared secret, used for mutual proof and never sent",
        default="none: no secret required",
        example="/run/edl/token",
    ),
    Variable(
        name="EDL_TLS_DIR",
        readers="all",
        meaning=(
            "folder with ca.crt, tls.crt and tls.key; every connection of the job is then mutual TLS, "
            "and the master's certificate names the host of EDL_MASTER"
        ),
        default="none: plain connections",
        example="/run/edl/tls",
    ),
    Variable(
        name="EDL_LISTEN",
        readers="server, master, trainer of a group",
        meaning=(
            "host:port to listen at, port 0: any; or unix:PATH in a folder of mode 0700; "
            "for a server and a trainer the folder alone suffices"
        ),
        default="server and trainer: any port of the address that it uses towards the master, master 127.0.0.1:0",
        example="0.0.0.0:7071",
    ),
    Variable(
        name="EDL_ADVERTISE",
        readers="server, trainer of a group",
        meaning="host at which trainers reach it",
        default="the address that it uses towards the master",
        example="10.1.2.3",
    ),
    Variable(
        name="EDL_GROUP",
        readers="trainer, master",
        meaning="`1`: the job is a group: every trainer holds the model, and all make each step together",
        default="`0`",
        example="1",
    ),
    Variable(
        name="EDL_GLOBAL_BATCH",
        readers="trainer of a group",
        meaning="records of one step of a group over all trainers, unless the script names a number itself",
        default="none",
        example="256",
    ),
    Variable(
        name="EDL_STANDBY",
        readers="master",
        meaning="`1`: wait for SIGUSR1, which reports that the previous master process is dead (ADR 0202)",
        default="`0`",
        example="1",
    ),
    Variable(
        name="EDL_PARENT_PID",
        readers="server, master",
        meaning="end when this process is no longer the parent",
        default="none",
        example="4711",
    ),
)


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
        grace_s=_seconds(variables, "EDL_GRACE_S", default=30.0, may_be_zero=True),
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


def _seconds(variables: Mapping[str, str], name: str, *, default: float, may_be_zero: bool = False) -> float:
    text = variables.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 < value < _MOST_SECONDS or (may_be_zero and value == 0)):
        raise UsageError(f"{name}: {text!r} is not a number of seconds above 0 and below {_MOST_SECONDS:g}")
    return value


def environment_page() -> str:
    """The text of docs/environment.md."""
    rows = "\n".join(f"| `{v.name}` | {v.readers} | {v.meaning} | {v.default} | `{v.example}` |" for v in VARIABLES)
    return f"""# The environment of a pod, version {ENVIRONMENT_VERSION}

Made from `trainer_sdk/environment.py` by `python -m trainer_sdk.environment > docs/environment.md`; a test compares.

| variable | read by | meaning | default | example |
|---|---|---|---|---|
{rows}

GPUs: `CUDA_VISIBLE_DEVICES` lists a trainer's GPUs.  The master's further settings are in
`master/process/master_config.py`.

Skew: `EDL_ENV_VERSION` is raised when a variable changes its meaning or a new one must not be ignored; a process
refuses a version that it does not know.  Within a version variables may be added if ignoring them is harmless.  An
empty variable counts as unset.  `docs/guide.md` lists which versions of wire, data path and files go together.
"""


if __name__ == "__main__":
    sys.stdout.write(environment_page())
