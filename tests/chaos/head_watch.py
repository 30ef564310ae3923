"""Follows a job's committed checkpoints as they appear, and keeps what each one held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from master.api.checkpoints.audit import try_head_hint
from master.api.checkpoints.checkpoint_files import read_manifest
from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.storage import Storage, open_storage
from master.api.errors import StorageError
from tests.chaos.ledger import Head, read_head

LOOK_EVERY_S = 0.1


class HeadWatch:
    """`heads` has what was seen, oldest first.  Retention may take one away before it was read: `missed` counts."""

    def __init__(self, uri: str, *, read: Callable[[Storage, Manifest, float], Head] = read_head) -> None:
        self._read = read
        self._storage: Storage = open_storage(uri)
        self.heads: list[Head] = []
        self.missed = 0

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Looks often beside the block, and once more at its end.  What goes wrong in that is raised then."""
        task = asyncio.create_task(self._follow())
        try:
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.look()

    async def _follow(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Takes in the present head, if it is a new one."""
        head = try_head_hint(self._storage)
        if head is None or any(known.manifest.id == head for known in reversed(self.heads)):
            return  # also when a master that had been paused noted an old one
        seen_at_s = time.monotonic()
        try:
            manifest: Manifest = read_manifest(self._storage, head)
            self.heads.append(self._read(self._storage, manifest, seen_at_s))
        except StorageError:
            if try_head_hint(self._storage) == head:
                raise
            self.missed += 1
