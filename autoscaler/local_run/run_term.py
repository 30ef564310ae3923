"""The operator's part of a run: its term, what it finds in the API server when it begins, and who watches its masters.

These modules take a third of a second to import, which a run has while its etcd starts (`local_run._import_run_term`).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.clusters.local.control_plane.control_plane import ControlPlane
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import NodeName
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.local_run.decision_journal import DecisionJournal
from autoscaler.local_run.hung_processes import HungProcesses
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.local_run.submission import IMAGE
from autoscaler.loop import LoopPass
from autoscaler.operator.controllers.definition_check import CURRENT, NAME, REVISION
from autoscaler.operator.leader_term import LeaderTerm
from autoscaler.operator.metered_api import MeteredApi
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.process.policy_file import policy_config_map
from autoscaler.operator.term_settings import TermIntervals, TermSettings

if TYPE_CHECKING:
    from autoscaler.local_run.gpu_watch import GpuWatch

LOCAL_INTERVALS: Final = TermIntervals(
    poll_every_s=0.25,
    poll_tick_s=0.1,
    longest_poll_pause_s=0.5,
    settle_every_s=0.02,
    status_settle_s=0.1,
    progress_every_s=1.0,
    sync_poll_s=0.005,
)
"""A run has few masters, all on this machine, and somebody who watches."""

_DEFINITION: Final = {"metadata": {"name": NAME, "annotations": {REVISION: str(CURRENT)}}}


def _make_gpu_watch(plane: ControlPlane, api: Api, settings: RunSettings) -> GpuWatch:
    from autoscaler.local_run.gpu_watch import GpuWatch  # noqa: PLC0415 - where there are GPUs

    devices = {NodeName(one.name): numbers for one, numbers in zip(settings.machines, settings.devices, strict=True)}
    return GpuWatch(plane.server, api, devices, window_s=settings.gpu_window_s)


class RunTerm:
    """A term over the run's control plane.  `endpoints`: of etcd; empty: masters keep their state in memory."""

    def __init__(self, plane: ControlPlane, settings: RunSettings, endpoints: str, journal: RunJournal) -> None:
        self.metrics: Final = Metrics()
        self.metrics.leading.set(1)
        self._api = MeteredApi(MemoryApi(plane.server), self.metrics.count_call)
        self._settings = settings
        self._masters = MasterConnections()
        build = BuildSettings(
            image=IMAGE,
            etcd=EtcdAccess(endpoints=endpoints),
            reclaim=settings.policy.reclaim,
            elastic_servers=True,
            moves_servers=settings.moves_servers,
        )
        term = TermSettings(
            identity="edl-run",
            policy=settings.policy,
            build=build,
            socket_of=plane.socket_of,
            intervals=LOCAL_INTERVALS,
            blocks_failing_nodes=False,
            reads_gpu_reports=settings.gpu_window_s > 0,
        )
        self.term: Final = LeaderTerm(self._api, term, self.metrics, self._masters, on_pass=self._record_pass)
        self._decisions = DecisionJournal(journal, self.term.loop, self.term.errors)
        self.gpus: Final = _make_gpu_watch(plane, self._api, settings) if settings.gpu_window_s else None
        self._hung = HungProcesses(self.term.store, plane.kubelet, journal, clock=time.monotonic)

    async def run(self) -> None:
        """Lead until cancelled."""
        await self._api.create(CUSTOM_RESOURCE_DEFINITIONS, _DEFINITION)
        readable = policy_config_map(
            self._settings.policy, namespace="default", moves_servers=self._settings.moves_servers
        )
        await self._api.create(CONFIG_MAPS, readable)
        async with self._masters, asyncio.TaskGroup() as tasks:
            tasks.create_task(self.term.run(), name="term")
            tasks.create_task(self._hung.run(), name="hung processes")
            if self.gpus is not None:
                tasks.create_task(self.gpus.run(), name="GPUs")

    def _record_pass(self, done: LoopPass) -> None:
        self._decisions.record_pass(done)
