"""Settings of the operator process, from its command line, environment and policy file; all of them checked.

    edl operator --listen 0.0.0.0:8080 --policy /etc/edl/policy.yaml --lease NAMESPACE/NAME

From the environment: EDL_NAME (this pod's name), EDL_IMAGE (for masters and servers whose template names none),
EDL_ELASTIC_SERVERS (true: the number of parameter servers follows the trainers), EDL_MOVE_SERVERS (true: servers may
also move to nodes where they waste less), EDL_GPU_REPORTS (true: agents report what GPUs do), EDL_NOTICES_*
(`notices.notice_settings`), and EDL_ETCD_* for the masters.  User and password are not passed on if
EDL_ETCD_ADMIN_USER and EDL_ETCD_ADMIN_PASSWORD_FILE name a user that creates one for each job (ADR 0165).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.errors import InvalidSpecError
from autoscaler.operator.etcd.job_accounts import AccountSettings, read_account_settings
from autoscaler.operator.leadership.candidate import LeaseTiming
from autoscaler.operator.notices.notice_settings import read_notice_settings
from autoscaler.operator.process.policy_file import parse_policy, read_policy
from autoscaler.operator.term_settings import TermSettings

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_ETCD_FILES: Final = {
    "password": "EDL_ETCD_PASSWORD_FILE",
    "ca": "EDL_ETCD_CA_FILE",
    "certificate": "EDL_ETCD_CERT_FILE",
    "key": "EDL_ETCD_KEY_FILE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAddress:
    """Address at which probes and metrics listen; port 0: any that is free."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Settings of the operator process.

    `kubeconfig` None: the service account of the pod that this process runs in.
    """

    listen: ProbeAddress
    lease_namespace: str
    lease_name: str
    term: TermSettings
    accounts: AccountSettings | None = None
    kubeconfig: Path | None = None
    timing: LeaseTiming = field(default_factory=LeaseTiming)
    log_level: str = "INFO"


def read_settings(
    *,
    listen: str,
    lease: str,
    policy_file: Path | None = None,
    namespaces: str = "",
    kubeconfig: Path | None = None,
    log_level: str = "INFO",
    environ: Mapping[str, str] = os.environ,
) -> OperatorSettings:
    """Return the settings, with files read.  Raises InvalidSpecError with the option's, variable's or field's name."""
    policy = read_policy(policy_file) if policy_file is not None else parse_policy({})
    namespace, slash, name = lease.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise InvalidSpecError("--lease", f"is {lease!r}", "NAMESPACE/NAME")
    if log_level not in LOG_LEVELS:
        raise InvalidSpecError("--log-level", f"is {log_level!r}", ", ".join(LOG_LEVELS))
    etcd, accounts = _etcd(environ), read_account_settings(environ)
    return OperatorSettings(
        listen=_address(listen),
        lease_namespace=namespace,
        lease_name=name,
        term=TermSettings(
            identity=environ.get("EDL_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            policy=policy,
            build=BuildSettings(
                image=_image(environ),
                etcd=replace(etcd, is_separate=accounts is not None and accounts.is_separate),
                reclaim=policy.reclaim,
                elastic_servers=_switch(environ, "EDL_ELASTIC_SERVERS"),
                moves_servers=_moves_servers(environ),
                surplus_grace_s=policy.surplus_grace_s,
            ),
            namespaces=_namespaces(namespaces),
            reads_gpu_reports=_switch(environ, "EDL_GPU_REPORTS"),
            notices=read_notice_settings(environ),
        ),
        accounts=accounts,
        kubeconfig=kubeconfig,
        log_level=log_level,
    )


def _address(text: str) -> ProbeAddress:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InvalidSpecError("--listen", f"is {text!r}", "HOST:PORT, as in 0.0.0.0:8080")
    return ProbeAddress(host=host.strip("[]"), port=int(port))


def _namespaces(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise InvalidSpecError("--namespaces", f"is {text!r}", "comma-separated names")
    return names


def _image(environ: Mapping[str, str]) -> str:
    image = environ.get("EDL_IMAGE", "").strip()
    if not image:
        raise InvalidSpecError("EDL_IMAGE", "is not set", "the image of masters and parameter servers")
    return image


def _switch(environ: Mapping[str, str], variable: str) -> bool:
    value = environ.get(variable, "").strip() or "false"
    if value not in {"true", "false"}:
        raise InvalidSpecError(variable, f"is {value!r}", "true or false")
    return value == "true"


def _moves_servers(environ: Mapping[str, str]) -> bool:
    is_on = _switch(environ, "EDL_MOVE_SERVERS")
    if is_on and not _switch(environ, "EDL_ELASTIC_SERVERS"):
        raise InvalidSpecError("EDL_MOVE_SERVERS", "is true without EDL_ELASTIC_SERVERS", "set both or none")
    return is_on


def _etcd(environ: Mapping[str, str]) -> EtcdAccess:
    """Return the etcd access that each job's masters get.  Its files have to be there; masters check the rest."""
    files = {name: _read(environ, variable) for name, variable in _ETCD_FILES.items()}
    if bool(files["certificate"]) != bool(files["key"]):
        missing = _ETCD_FILES["key" if files["certificate"] else "certificate"]
        raise InvalidSpecError(missing, "is not set", "certificate and key go together")
    user = environ.get("EDL_ETCD_USER", "")
    if bool(user) != bool(files["password"]):
        raise InvalidSpecError("EDL_ETCD_USER", "and EDL_ETCD_PASSWORD_FILE go together", "set both or none")
    return EtcdAccess(
        endpoints=environ.get("EDL_ETCD_ENDPOINTS", "").strip(),
        user=user,
        password=files["password"],
        ca=files["ca"],
        certificate=files["certificate"],
        key=files["key"],
    )


def _read(environ: Mapping[str, str], variable: str) -> str:
    path = environ.get(variable)
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpecError(variable, f"{path} cannot be read: {error}") from None
