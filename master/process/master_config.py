"""The master's settings, parsed once from the environment of its pod (version 1); each error names the variable.

| variable               | meaning                                                               | default           |
|------------------------|-----------------------------------------------------------------------|-------------------|
| EDL_ENV_VERSION        | version of this list                                                  | 1                 |
| EDL_JOB                | name of the job                                                       | required          |
| EDL_NAME               | name of this pod                                                      | `<job>-master-0`  |
| EDL_LISTEN             | host:port for members, port 0: any; or unix:PATH                      | 127.0.0.1:0       |
| EDL_METRICS_LISTEN     | host:port for Prometheus; absent: no metrics                          |                   |
| EDL_ADDRESS_FILE       | where the bound address is written                                    |                   |
| EDL_CHECKPOINT_URI     | folder of manifests and checkpoint files                              | required          |
| EDL_CHECKPOINT_EVERY_S | seconds between commits (end to start)                                | 60                |
| EDL_SERVERS            | parameter servers when the job begins; 0: a job without them          | 0                 |
| EDL_MAX_SERVERS        | servers that there may be later (SetServers)                          | EDL_SERVERS       |
| EDL_COPIES             | copies of every bucket; 2: a lost server costs a promotion (ADR 0318) | 1                 |
| EDL_AFTER_LOSS         | what the other servers do: RollBack, or Keep what they have           | RollBack          |
| EDL_BUCKETS            | buckets of a new job's tables, 4,096 at most                          | 256               |
| EDL_CHECKPOINT_START   | start to request if the folder cannot be read: a manifest or fresh    |                   |
| EDL_HISTORY            | id of this job's checkpoint history, the same for all its masters     | as the checkpoint |
| EDL_UNREADABLE_S       | retry an unreadable checkpoint this long, then fail the job           | 60                |
| EDL_WHEN_UNREADABLE    | ... or, with FallBack, goes back to the checkpoint before             | Fail              |
| EDL_BACKOFF_LIMIT      | failures in a row without one batch completed that fail the job       | 6                 |
| EDL_RECONNECT_S        | seconds in which a member may reconnect                               | 10                |
| EDL_LEASE_FLOOR_S      | least seconds without progress before a trainer loses its leases      | 10                |
| EDL_MASTERS            | masters of this job; above 1 a cut-off one stops at once              | 1                 |
| EDL_LEADER_TTL_S       | lease on the leadership                                               | 6                 |
| EDL_ETCD_ENDPOINTS ... | see `master.store.etcd.etcd_config`; absent: memory store             |                   |
| EDL_TOKEN_FILE         | file with the job's shared secret; absent: no token required          |                   |
| EDL_TLS_DIR            | folder with ca.crt, tls.crt, tls.key                                  |                   |
| EDL_PARENT_PID         | exit when this is no longer the parent process                        |                   |
| EDL_STANDBY            | 1: wait for SIGUSR1, which reports that the previous master is dead   | 0                 |
| EDL_LOG_LEVEL          | DEBUG, INFO, WARNING or ERROR                                         | INFO              |
| EDL_GROUP              | 1: a group, whose trainers all hold the model; needs EDL_SERVERS 0    | 0                 |
| EDL_SHARES             | of a group's step: Equal, or Measured by trainers' speed (ADR 0296)   | Equal             |
| EDL_CHECK_INVARIANTS   | 1: check the core's invariants after each event (slow)                | 0                 |
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from master.api.checkpoints.folder_contents import RequestedStart
from master.api.checkpoints.resume import FRESH, parse_requested_start
from master.api.errors import ManifestError
from master.api.host.unix_sockets import SCHEME, is_socket_address, socket_path
from master.api.identities import HistoryId, WhenUnreadable, parse_when_unreadable
from master.errors import InvalidSettingError
from master.job.domain.durable_records import SECOND
from master.job.domain.job_config import AfterLoss, JobConfig
from master.leadership.election_state import LeadershipTiming
from master.process.environment_values import read_file, required, seconds, whole_number
from master.store.etcd.etcd_config import EtcdConfig
from master.store.job_keys import JobKeys

ENV_VERSION: Final = 1
MOST_COPIES: Final = 2
MOST_BUCKETS: Final = 4096
"""The route and the second copies of so many take about 130 KiB of the 512 KiB that one value of the store may have."""
_HISTORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketAddress:
    """A Unix socket in a folder that only this user can reach."""

    path: Path

    def __str__(self) -> str:
        return f"{SCHEME}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsIdentity:
    """PEM bytes: the master's certificate, its key, and the authority that members' certificates must have."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    job: str
    name: str
    listen: ListenAddress | SocketAddress
    checkpoint_uri: str
    history: HistoryId | None  # of what this job commits; None: that of the checkpoint to resume from
    answer: RequestedStart | None  # the start that was requested (EDL_CHECKPOINT_START)
    config: JobConfig
    timing: LeadershipTiming
    etcd: EtcdConfig | None  # None: memory store
    has_standbys: bool
    metrics_listen: ListenAddress | None
    address_file: Path | None
    token: str = field(repr=False)  # empty: none asked for
    tls: TlsIdentity | None
    parent_pid: int | None
    is_standby: bool
    log_level: str
    checks_invariants: bool
    is_group: bool = False  # trainers all hold the model (`master.group`)

    @property
    def requested_start(self) -> str:
        """The requested start as `parse_requested_start` reads it; empty: the folder decides."""
        return "" if self.answer is None else self.answer.manifest or FRESH

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """The settings of this process.  Raises InvalidSettingError, naming the variable."""
        _check_version(environ)
        job = required(environ, "EDL_JOB", hint="Name the job, as in its YAML")
        JobKeys(job)
        metrics, address_file = environ.get("EDL_METRICS_LISTEN"), environ.get("EDL_ADDRESS_FILE")
        return cls(
            job=job,
            name=environ.get("EDL_NAME") or f"{job}-master-0",
            listen=_listen("EDL_LISTEN", environ.get("EDL_LISTEN") or "127.0.0.1:0"),
            checkpoint_uri=required(environ, "EDL_CHECKPOINT_URI", hint="Name a folder, or a URI that fsspec knows"),
            history=_history(environ),
            answer=_answer(environ),
            config=JobConfig(
                servers=whole_number(environ, "EDL_SERVERS", default=0, least=0),
                max_servers=_max_servers(environ),
                copies=_copies(environ),
                bucket_count=whole_number(environ, "EDL_BUCKETS", default=256, least=1, most=MOST_BUCKETS),
                after_loss=_after_loss(environ),
                checkpoint_every_ns=int(seconds(environ, "EDL_CHECKPOINT_EVERY_S", default=60.0) * SECOND),
                reconnect_window_ns=int(seconds(environ, "EDL_RECONNECT_S", default=10.0) * SECOND),
                lease_floor_ns=int(seconds(environ, "EDL_LEASE_FLOOR_S", default=10.0) * SECOND),
                unreadable_ns=int(seconds(environ, "EDL_UNREADABLE_S", default=60.0) * SECOND),
                falls_back=_when_unreadable(environ) is WhenUnreadable.FALL_BACK,
                backoff_limit=whole_number(environ, "EDL_BACKOFF_LIMIT", default=6, least=0),
                measures_shares=_measures_shares(environ),
            ),
            timing=_timing(whole_number(environ, "EDL_LEADER_TTL_S", default=6, least=2)),
            etcd=EtcdConfig.try_from_environment(environ),
            has_standbys=whole_number(environ, "EDL_MASTERS", default=1, least=1) > 1,
            metrics_listen=parse_address("EDL_METRICS_LISTEN", metrics) if metrics else None,
            address_file=Path(address_file) if address_file else None,
            token=_secret(environ),
            tls=_identity(environ),
            parent_pid=whole_number(environ, "EDL_PARENT_PID", default=0, least=0) or None,
            is_standby=environ.get("EDL_STANDBY", "0") == "1",
            log_level=_log_level(environ),
            checks_invariants=environ.get("EDL_CHECK_INVARIANTS", "0") == "1",
            is_group=_is_group(environ),
        )


def parse_address(variable: str, text: str) -> ListenAddress:
    """`host:port` or `[v6]:port`.  Raises InvalidSettingError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidSettingError(variable, f"{text!r} is not an address", hint="Write host:port, as in 0.0.0.0:7164")
    return ListenAddress(host=host, port=int(port))


def _listen(variable: str, text: str) -> ListenAddress | SocketAddress:
    if not is_socket_address(text):
        return parse_address(variable, text)
    try:
        return SocketAddress(path=socket_path(text))
    except ValueError as error:
        raise InvalidSettingError(variable, str(error), hint="Write unix:/a/path, short enough") from error


def _check_version(environ: Mapping[str, str]) -> None:
    version = environ.get("EDL_ENV_VERSION", str(ENV_VERSION))
    if version != str(ENV_VERSION):
        raise InvalidSettingError(
            "EDL_ENV_VERSION",
            f"is {version!r}; this EDL reads {ENV_VERSION}",
            hint="Use the same EDL release on cluster and image",
        )


def _is_group(environ: Mapping[str, str]) -> bool:
    is_group = environ.get("EDL_GROUP", "0") == "1"
    if is_group and whole_number(environ, "EDL_SERVERS", default=0, least=0):
        problem = "is 1, but EDL_SERVERS gives the job parameter servers"
        raise InvalidSettingError("EDL_GROUP", problem, hint="A group's trainers hold the model: leave one of them out")
    return is_group


def _measures_shares(environ: Mapping[str, str]) -> bool:
    text = environ.get("EDL_SHARES") or "Equal"
    if text not in ("Equal", "Measured"):
        raise InvalidSettingError("EDL_SHARES", f"{text[:40]!r} is no way to share a step", hint="Equal or Measured")
    return text == "Measured"


def _max_servers(environ: Mapping[str, str]) -> int:
    servers = whole_number(environ, "EDL_SERVERS", default=0, least=0)
    most = whole_number(environ, "EDL_MAX_SERVERS", default=servers, least=0)
    if most < servers:
        problem = f"is {most}, below EDL_SERVERS, which is {servers}"
        raise InvalidSettingError("EDL_MAX_SERVERS", problem, hint="Leave it out, or raise it")
    if most and not servers:
        problem = f"is {most}, but EDL_SERVERS is 0: a job without servers cannot get them later"
        raise InvalidSettingError("EDL_MAX_SERVERS", problem, hint="Leave it out, or set EDL_SERVERS")
    return most


def _copies(environ: Mapping[str, str]) -> int:
    copies = whole_number(environ, "EDL_COPIES", default=1, least=1)
    if copies > MOST_COPIES:
        raise InvalidSettingError("EDL_COPIES", f"is {copies}", hint="1, or 2: an owner and its backup")
    if copies > max(1, _max_servers(environ)):
        problem = "is 2, but there is never a second server to have the second copy"
        raise InvalidSettingError("EDL_COPIES", problem, hint="Set EDL_SERVERS or EDL_MAX_SERVERS to 2 or more")
    return copies


def _after_loss(environ: Mapping[str, str]) -> AfterLoss:
    text = environ.get("EDL_AFTER_LOSS") or AfterLoss.ROLL_BACK.value
    if text not in tuple(AfterLoss):
        raise InvalidSettingError(
            "EDL_AFTER_LOSS", f"{text[:40]!r} is not a policy", hint=f"One of {', '.join(AfterLoss)}"
        )
    return AfterLoss(text)


def _when_unreadable(environ: Mapping[str, str]) -> WhenUnreadable:
    try:
        return parse_when_unreadable(environ.get("EDL_WHEN_UNREADABLE") or "")
    except ValueError as error:
        hint = "Write one of them, or leave it out"
        raise InvalidSettingError("EDL_WHEN_UNREADABLE", str(error), hint=hint) from error


def new_history() -> HistoryId:
    """A history name that no other history has."""
    return HistoryId(f"h{secrets.token_hex(8)}")


def _history(environ: Mapping[str, str]) -> HistoryId | None:
    name = environ.get("EDL_HISTORY")
    if not name:
        return None
    if not _HISTORY.fullmatch(name):
        hint = "Use letters, digits, '.', '_' and '-', 128 at most"
        raise InvalidSettingError("EDL_HISTORY", f"{name[:40]!r} is not usable as a file name", hint=hint)
    return HistoryId(name)


def _answer(environ: Mapping[str, str]) -> RequestedStart | None:
    """Requested start.  It needs EDL_HISTORY, otherwise every new master would carry it out again."""
    text = environ.get("EDL_CHECKPOINT_START") or ""
    if not text:
        return None
    if (history := _history(environ)) is None:
        hint = "Set EDL_HISTORY to a new name, and leave it so for every master of this job"
        raise InvalidSettingError("EDL_CHECKPOINT_START", "needs EDL_HISTORY beside it", hint=hint)
    try:
        return parse_requested_start(text, history)
    except ManifestError as error:
        hint = f"Write {FRESH}, or the id of a manifest"
        raise InvalidSettingError("EDL_CHECKPOINT_START", str(error), hint=hint) from error


def _timing(lease_ttl_s: int) -> LeadershipTiming:
    return LeadershipTiming(
        lease_ttl_s=lease_ttl_s, renew_deadline_s=lease_ttl_s * 2 / 3, retry_period_s=lease_ttl_s / 6
    )


def _identity(environ: Mapping[str, str]) -> TlsIdentity | None:
    folder = environ.get("EDL_TLS_DIR")
    if not folder:
        return None
    ca, certificate, key = (
        read_file({"EDL_TLS_DIR": f"{folder}/{name}"}, "EDL_TLS_DIR") for name in ("ca.crt", "tls.crt", "tls.key")
    )
    return TlsIdentity(ca=ca, certificate=certificate, key=key)


def _secret(environ: Mapping[str, str]) -> str:
    """The job's secret; empty: no file is named.  An empty file is refused: it would disable authentication."""
    if not environ.get("EDL_TOKEN_FILE"):
        return ""
    try:
        secret = read_file(environ, "EDL_TOKEN_FILE").decode("ascii").strip()
    except UnicodeDecodeError:
        secret = ""
    if not secret:
        raise InvalidSettingError("EDL_TOKEN_FILE", "holds no secret", hint="Write one line of ASCII text into it")
    return secret


def _log_level(environ: Mapping[str, str]) -> str:
    level = environ.get("EDL_LOG_LEVEL") or "INFO"
    if level not in LOG_LEVELS:
        raise InvalidSettingError("EDL_LOG_LEVEL", f"{level!r} is not a level", hint=f"One of {', '.join(LOG_LEVELS)}")
    return level
