"""Work of one term on its checkpoint folder: manifests, HEAD, retention, adoption.  Each piece ends in an event.

A slow folder holds up no other effect of the term.  Not here: what the files hold (`durable.checkpoint_folder`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, assert_never

from master.api.checkpoints.manifest import Manifest
from master.api.errors import ContractError
from master.api.identities import HistoryId, ManifestId
from master.durable.checkpoint_folder import ADOPTION_BUDGET_S, CheckpointFolder, call_with_timeout
from master.durable.head_file import HeadFile
from master.job.domain.effects import FindAdoptable, Retain, WriteManifest
from master.job.domain.job_events import AdoptableFound, CoreEvent, HeadNamed, ManifestWriteFailed, ManifestWritten

log: Final = logging.getLogger(__name__)


class FolderWork:
    """Tasks on the folder.  `history`: of what this job commits; None: it has no name, and the folder to itself."""

    def __init__(
        self, folder: CheckpointFolder, history: HistoryId | None, add_event: Callable[[CoreEvent], object]
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._folder, self._history, self._add_event = folder, history, add_event
        self._head_file = HeadFile(folder)
        self._failure: BaseException | None = None  # of a task: a bug, for what can go wrong is an event

    @property
    def head_problem(self) -> str:
        """Reason why HEAD does not name the last commit yet; empty: it does."""
        return self._head_file.problem

    def begin(self, head: Manifest | None) -> None:
        """Write HEAD, for the master that committed `head` may have been killed before; discard leftovers."""
        if head is not None:
            self.finish_commit(head.id, then=HeadNamed(manifest=head.id))
        self._run(asyncio.to_thread(self._folder.discard_leftovers))

    def check(self) -> None:
        """Raises the failure of a task."""
        if self._failure is not None:
            raise self._failure

    def start(self, effect: WriteManifest | FindAdoptable | Retain) -> None:
        """Carry out the effect in a task."""
        match effect:
            case WriteManifest():
                self._run(self._write_manifest(effect))
            case FindAdoptable():
                self._run(self._find_adoptable(effect))
            case Retain():
                self._run(self._head_file.retain(effect.manifests))
            case _:
                assert_never(effect)

    def finish_commit(self, manifest: ManifestId, *, then: CoreEvent) -> None:
        """Write HEAD before the event that has the checkpoint acknowledged, which survives the store's loss by that."""
        self._run(self._finish_commit(manifest, then))

    async def finish_head(self) -> None:
        """Wait until HEAD names the last commit of this term, but not long for a slow folder."""
        await self._head_file.finish()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error

    async def _finish_commit(self, manifest: ManifestId, then: CoreEvent) -> None:
        await self._head_file.write(manifest)
        self._add_event(then)

    async def _write_manifest(self, effect: WriteManifest) -> None:
        manifest = replace(effect.manifest, created_at_s=time.time())
        try:
            await call_with_timeout(self._folder.check_written, manifest)  # by members, whose mounts may differ
            await call_with_timeout(self._folder.write, manifest)
        except ContractError as error:
            log.warning("manifest %s: %s", manifest.id, error)
            self._add_event(ManifestWriteFailed(manifest=manifest.id, reason=str(error)))
        else:
            self._add_event(ManifestWritten(manifest=manifest.id))

    async def _find_adoptable(self, effect: FindAdoptable) -> None:
        try:
            search, budget_s = self._folder.find_adoptable, 2 * ADOPTION_BUDGET_S
            found = await call_with_timeout(search, effect.parent, effect.lineage, self._history, budget_s=budget_s)
        except ContractError as error:
            log.warning("no manifest is adopted: %s", error)
            found = None
        self._add_event(AdoptableFound(manifest=found))
