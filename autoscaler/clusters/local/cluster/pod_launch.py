"""Launch of a pod's process: its program, its environment, its folder, and the addresses that its job shares."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

from autoscaler.clusters.local.cluster.local_jobs import LocalJob
from autoscaler.clusters.local.machine.ports import PortAllocator
from autoscaler.clusters.local.machine.process_environment import inherit
from autoscaler.clusters.local.machine.processes import Command
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.clusters.local.pods.member_environment import JobPlace, job_environment, web_environment
from autoscaler.clusters.local.run_files.run_folder import RunFolder, make_token
from autoscaler.domain import Role
from autoscaler.manifests.api_types import TrainingJob
from master.api.checkpoints.storage import is_path
from master.api.host.unix_sockets import SCHEME

MASTER_PROGRAM = (sys.executable, "-P", "-m", "master")  # -P: a master.py in the user's folder is not ours
SERVER_PROGRAM = (sys.executable, "-P", "-m", "trainer_sdk.pserver")


@dataclass(slots=True, kw_only=True)
class PodLauncher:
    """What all pods of a run have in common.  `etcd`: endpoints, set when it serves; empty: masters without a store."""

    folder: RunFolder
    working_dir: Path
    environment: Mapping[str, str]
    etcd: str = ""
    ports: PortAllocator = field(default_factory=PortAllocator)

    def place_job(self, job: TrainingJob) -> JobPlace:
        """Addresses that stay for the job's whole life, so that a restarted master is found where it was.

        Members listen on Unix sockets in the run's private folder, and know a secret of their job alone (ADR 0170).
        """
        token_file, token = make_token(self.folder, job.name)
        checkpoint_uri = job.checkpoint.uri or str(self.folder.checkpoints / job.name)
        return JobPlace(
            master=f"{SCHEME}{self.folder.sockets}/m{secrets.token_hex(6)}",
            servers=f"{SCHEME}{self.folder.sockets}",
            etcd=self.etcd,
            checkpoint_uri=checkpoint_uri,
            token_file=token_file,
            token=token,
            history=f"{self.folder.root.name}-{secrets.token_hex(4)}",
            is_claimed=is_path(checkpoint_uri),
        )

    def command_of(self, pod: LocalPod, record: LocalJob | None) -> Command:
        """What to run for this pod, with its environment complete."""
        template = pod.template
        environment = inherit(
            self.environment, path_first=Path(sys.executable).parent, cpu_milli=template.requests.cpu_milli
        )
        told = web_environment(pod) if record is None else job_environment(pod, record.job, record.place)
        return Command(
            argv=template.command or _own_program(pod.role),
            env=environment | dict(template.env) | told,
            cwd=self.working_dir / template.working_dir if template.working_dir else self.working_dir,
            log=pod.log,
        )

    def standby_of(self, pod: LocalPod, record: LocalJob | None) -> Command | None:
        """What stands by for this pod's process, started and connected; None: nothing could take over from it.

        A master without a store keeps what it knows in its memory, and one of the user's own may know no such order.
        """
        if record is None or pod.role is not Role.MASTER or not record.place.etcd or pod.template.command:
            return None
        command = self.command_of(pod, record)
        return replace(command, env={**command.env, "EDL_STANDBY": "1"}, waits=True)


def _own_program(role: Role) -> tuple[str, ...]:
    match role:
        case Role.MASTER:
            return MASTER_PROGRAM
        case Role.SERVER:
            return SERVER_PROGRAM
        case Role.TRAINER | Role.EXTERNAL:
            raise ValueError(f"a {role} has no program of its own")  # refused when its file was read
        case _:
            assert_never(role)
