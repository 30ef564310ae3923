"""The file HEAD of a checkpoint folder: a term writes the id of each committed manifest there, after the store.

Readers without the store resume from HEAD, so nothing that HEAD may still name is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from master.api.errors import StorageError
from master.api.host.log_lines import HEAD_WAITS
from master.api.identities import ManifestId
from master.durable.checkpoint_folder import CheckpointFolder, call_with_timeout

log: Final = logging.getLogger(__name__)

FINISH_BUDGET_S: Final = 1.0  # for HEAD to be written when the term ends; the lease is given back after it
RETRY_S: Final = 1.0  # pause before HEAD is written again after a failure


class HeadFile:
    """HEAD as one term writes it.  `problem`: why HEAD does not name the last commit yet; empty: it does."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.problem = ""
        self._folder = folder
        self._newest: ManifestId | None = None
        self._is_written = asyncio.Event()  # HEAD names `_newest`

    async def write(self, manifest: ManifestId) -> None:
        """Write HEAD for this manifest or a later one, retrying until it succeeds; training continues meanwhile."""
        self._newest = manifest
        self._is_written.clear()
        while self._newest == manifest:  # a later commit has its own call
            try:
                await call_with_timeout(self._folder.write_head, manifest)
            except StorageError as error:
                log.warning(HEAD_WAITS, manifest, error)
                self.problem = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                self.problem = ""
                self._is_written.set()
                return

    async def finish(self) -> None:
        """Waits until HEAD names the last commit of this term, but not long for a slow folder."""
        if self._newest is not None and not self.problem:
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_BUDGET_S):
                    await self._is_written.wait()

    async def retain(self, manifests: frozenset[ManifestId]) -> None:
        """Retires what is not among these, once HEAD names what is kept (`retention`)."""
        await self._is_written.wait()
        await asyncio.to_thread(self._folder.retain, manifests)
