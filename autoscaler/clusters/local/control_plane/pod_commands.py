"""Command line and environment of a pod's process.

A container says what it runs as on any cluster; a process of this machine differs in three points.  Its Secrets are
files in the run's folder, so paths below a mount are rewritten.  It shares the machine's network with all others, so
members of a job listen on Unix sockets in the run's private folder and not on EDL's fixed ports (ADR 0170).  A `port`
is a web pod's own, or that of a master's metrics.  And it
inherits the environment of `edl run`, so that a script finds its libraries.
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.clusters.kubernetes.builders.pod_environment import IDENTITY_FOLDER
from autoscaler.clusters.kubernetes.objects.fields import Raw, part, parts, text
from autoscaler.clusters.kubernetes.objects.labels import ROLE
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.local.machine.ports import HOST
from autoscaler.clusters.local.machine.process_environment import device_list, inherit
from autoscaler.clusters.local.machine.processes import NO_ROOM, Command, MachineFullError
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.domain import Role
from master.api.checkpoints.storage import is_path
from master.api.host.unix_sockets import SCHEME

_OF_PORTS: Final = ("EDL_ADVERTISE", "EDL_METRICS_LISTEN", "EDL_TLS_DIR")
"""What only members with TCP ports are told: in the run's private folder no other user can connect or listen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCommands:
    """Commands of a run's pods, with what all pods have in common.  `secret_of`: a Secret by namespace and name.

    `cuda_ids`: CUDA's names of GPUs by their number; one without is named by its number.
    """

    folder: RunFolder
    working_dir: Path
    environment: Mapping[str, str]
    secret_of: Callable[[str, str], Raw]
    cuda_ids: Mapping[int, str] = field(default_factory=dict)

    def command_of(self, pod: Raw, *, port: int | None, gpus: Sequence[int]) -> Command:
        """Command of the pod's one container.  The pod's Secrets stand as files after the call.

        Raises ClusterError, MachineFullError where there is no room for these files, OSError.
        """
        (container, *_) = parts(pod, "spec", "containers")
        name, request = text(pod, "metadata", "name"), pod_request(pod["spec"])
        variables = {text(one, "name"): _value_of(one, pod) for one in parts(container, "env")}
        if is_member(pod):
            variables = self._of_member(variables, self._mount_identity(pod))
        told = {} if port is None else {"PORT": str(port)}
        if port is not None and is_member(pod):
            told = {"EDL_METRICS_LISTEN": f"{HOST}:{port}"}
        own = {"EDL_NAME": name, "HOSTNAME": name, "CUDA_VISIBLE_DEVICES": device_list(gpus, self.cuda_ids)} | told
        folder = text(container, "workingDir")
        return Command(
            argv=_argv_of(container),
            env=inherit(self.environment, path_first=Path(sys.executable).parent, cpu_milli=request.cpu_milli)
            | variables
            | own,
            cwd=self.working_dir / folder if folder else self.working_dir,
            log=self.folder.log_of(name),
        )

    def remove_identity(self, pod_uid: str) -> None:
        """Delete the files of the pod's Secrets, if it has any.  Raises OSError."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._identity_of(pod_uid))

    def socket_of(self, store_name: str) -> str:
        """Address of the job's master, its whole life long: `unix:PATH`."""
        return f"{SCHEME}{self.folder.sockets}/{store_name.rpartition('.')[2]}-m"

    def _of_member(self, variables: Mapping[str, str], identity: Path) -> dict[str, str]:
        """The environment of a master, server or trainer, with sockets in place of ports."""
        kept = {
            name: value.replace(IDENTITY_FOLDER, str(identity))
            for name, value in variables.items()
            if name not in _OF_PORTS
        }
        master = self.socket_of(variables["EDL_JOB"])
        role = Role(variables["EDL_ROLE"])
        is_peer = role is Role.SERVER or (role is Role.TRAINER and variables.get("EDL_GROUP") == "1")
        listen = master if role is Role.MASTER else f"{SCHEME}{self.folder.sockets}" if is_peer else ""
        if "EDL_HISTORY" in kept and _goes_on_in_its_folder(kept):
            kept["EDL_HISTORY"] = ""
        return kept | {"EDL_MASTER": master} | ({"EDL_LISTEN": listen} if listen else {})

    def _mount_identity(self, pod: Raw) -> Path:
        """The pod's own folder with the Secret of the job's members or masters, for its owner's eyes only."""
        namespace = text(pod, "metadata", "namespace")
        volumes = parts(pod, "spec", "volumes")
        name = next((found for volume in volumes if (found := text(volume, "secret", "secretName"))), "")
        secret = self.secret_of(namespace, name)
        folder = self._identity_of(text(pod, "metadata", "uid"))
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            for file, content in part(secret, "data").items():
                _write_private(folder / file, base64.b64decode(content))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise MachineFullError(f"{folder} cannot be written: {error.strerror}") from error
        return folder

    def _identity_of(self, pod_uid: str) -> Path:
        return self.folder.tokens / pod_uid


def is_member(pod: Raw) -> bool:
    """True for masters, servers and trainers of a job, whatever the environment of others says."""
    return bool(text(pod, "metadata", "labels", ROLE))


def _goes_on_in_its_folder(variables: Mapping[str, str]) -> bool:
    """True if a master without a history of its own takes that of its checkpoint folder, which this run alone has.

    An object store cannot be locked: another run there would go on in the same history, and each delete the other's.
    """
    return not variables.get("EDL_CHECKPOINT_START") and is_path(variables["EDL_CHECKPOINT_URI"])


def _argv_of(container: Raw) -> tuple[str, ...]:
    """The container's command and arguments.

    `python -m` of a module of `master` or `trainer_sdk` becomes this interpreter with `-P`, so that no file of the
    working directory shadows the module.  Every other command stays as it is: its `python` is the first one on PATH.
    """
    argv = (*container.get("command", ()), *container.get("args", ()))
    match argv:
        case ("python", "-m", module, *rest) if module.startswith(("master.", "trainer_sdk.")):
            return (sys.executable, "-P", "-m", module, *rest)
        case _:
            return argv


def _value_of(variable: Raw, pod: Raw) -> str:
    """The variable's value; one of the downward API is read from the pod."""
    path = text(variable, "valueFrom", "fieldRef", "fieldPath")
    return text(pod, *path.split(".")) if path else text(variable, "value")


def _write_private(path: Path, content: bytes) -> None:
    """Replace the file in one step: a process may be reading it."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
