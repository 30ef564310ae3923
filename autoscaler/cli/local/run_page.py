"""What the page reads of a run on this machine: the objects in its API server, its journal, its folder."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from autoscaler.cli.kubernetes.cluster_snapshot import read_cluster_snapshot
from autoscaler.cli.local.run_place import as_in_files
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODE_GPUS, NODES, PODS, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.clusters.local.run_files.run_journal import RunEvent
from autoscaler.local_run.local_run import LocalRun
from autoscaler.snapshots import SnapshotContent
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.history.journal import JournalLine

_TAIL_BYTES: Final = 16 << 10
_KINDS: Final = {"tj": TRAINING_JOBS, "pod": PODS, "deployment": DEPLOYMENTS}


class RunPageSource:
    """The `PageSource` of a run that goes on in this process."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run
        self._server = run.plane.server
        self._namespaces: dict[str, str] = {}  # of objects by TYPE/NAME, also of those gone that events tell of

    @property
    def title(self) -> str:
        """Name of the run's folder."""
        return self._run.folder.root.name

    @property
    def problem(self) -> str:
        """See `PageSource`: none, the API server is in this process."""
        return ""

    def documents(self) -> ClusterDocuments | None:
        """See `PageSource`."""
        if not self._run.term.is_synced:
            return None
        return ClusterDocuments(
            now_s=time.time(),
            nodes=self._all(NODES),
            pods=self._all(PODS),
            jobs=self._all(TRAINING_JOBS),
            deployments=self._all(DEPLOYMENTS),
            node_gpus=self._all(NODE_GPUS),
        )

    def journal(self) -> Sequence[JournalLine]:
        """See `PageSource`: the events of `edl events`."""
        began_at_s = time.time() - self._run.recorder.elapsed_s()
        events = tuple(self._run.recorder.events)
        told = {event.object for event in events}
        kept = {name: namespace for name, namespace in self._namespaces.items() if name in told}
        standing = {
            f"{word}/{text(raw, 'metadata', 'name')}": text(raw, "metadata", "namespace")
            for word, kind in _KINDS.items()
            for raw in self._server.all(kind)
        }
        self._namespaces = kept | standing
        return [self._line(event, began_at_s) for event in events]

    async def snapshot(self) -> SnapshotContent:
        """See `PageSource`: the snapshot of `edl snapshot save`."""
        found = await read_cluster_snapshot(self._run.api, title=self.title, now_s=time.time())
        return await asyncio.to_thread(as_in_files, found.snapshot, self._run.folder)

    async def log_tail(self, namespace: str, pod: str, lines: int) -> Sequence[str]:  # noqa: ARG002 - of the port
        """See `PageSource`."""
        return await asyncio.to_thread(read_tail, self._run.folder, pod, lines)

    async def wait_for_change(self, version: int) -> int:
        """See `PageSource`."""
        history = self._server.history
        with history.waiting() as woken:
            while history.version == version:
                await woken.wait()
                woken.clear()
        return history.version

    def _all(self, kind: Kind) -> tuple[Raw, ...]:
        return tuple(self._server.all(kind))

    def _line(self, event: RunEvent, began_at_s: float) -> JournalLine:
        return JournalLine(
            at_s=began_at_s + event.t_s,
            kind=event.kind,
            object=event.object,
            reason=event.reason,
            message=event.message,
            namespace=self._namespaces.get(event.object, ""),
        )


def read_tail(folder: RunFolder, pod: str, lines: int) -> Sequence[str]:
    """Return the last lines of the pod's log; none if it has not started."""
    try:
        with folder.log_of(pod).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            return tuple(deque(log.read().decode(errors="replace").splitlines(), maxlen=lines))
    except OSError:
        return ()
