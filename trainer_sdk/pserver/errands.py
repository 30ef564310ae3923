"""Loading a model and writing a fork's file: in threads of their own, without the lock but for moments.

What comes of it goes to the core as an event.  Copies to other servers are in `couriers`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from master.api.errors import StorageAlteredError, StorageError, StorageMissingError
from master.api.identities import MemberName
from master.api.messages import Restore
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import CheckpointError, EdlError, TableError
from trainer_sdk.pserver.checkpoint_file import Author
from trainer_sdk.pserver.fork_file import BucketArrays, ForkGoneError, write_fork
from trainer_sdk.pserver.loading import load_model
from trainer_sdk.pserver.messages import Event, LoadFailed, LoadModel, ModelLoaded, WriteFork
from trainer_sdk.pserver.shell import Shell
from trainer_sdk.pserver.state import Phase
from trainer_sdk.pserver.tables import ForkedModel, Model

log = logging.getLogger(__name__)


class Errands:
    """Of one server, begun under its lock.  At most one load and one file are waited for; others end early."""

    def __init__(self, name: MemberName, shell: Shell) -> None:
        self._name, self._shell = name, shell

    def load(self, effect: LoadModel) -> None:
        """Ends in ModelLoaded or LoadFailed, unless a newer order comes before."""
        self._start(self._load, effect, self._shell.model)

    def write(self, order: WriteFork) -> None:
        """Ends in FileWritten or FileFailed, unless the fork goes before."""
        self._start(self._write, order, ForkedModel(self._shell.loaded()))

    def _start(self, work: Callable[..., Event | None], *args: object) -> None:
        def run() -> None:
            try:
                event = work(*args)
                if event is not None:
                    self._shell.control(event)
            except BaseException as error:
                self._shell.outside.fatal(error)
                raise

        threading.Thread(target=run, name=work.__name__, daemon=True).start()

    def _load(self, effect: LoadModel, kept: Model | None) -> Event | None:
        order, begun = effect.restore, time.monotonic()
        missing = (order.buckets | order.standby) - effect.keeps
        try:
            read, marks = load_model(self._shell.outside.storage, replace(order, buckets=missing, standby=EMPTY))
        except (CheckpointError, TableError) as error:
            return LoadFailed(lineage=order.lineage, message=str(error), is_damaged=_is_damage(error))
        if kept is not None and not self._join(order, kept, read):
            return None
        with self._shell.lock:
            if not self._shell.take_model(order, kept or read):
                return None
        told = (order.lineage, time.monotonic() - begun, len(effect.keeps), len(missing))
        log.info("lineage %d: model ready after %.2f s, %d buckets kept, %d read", *told)
        return ModelLoaded(lineage=order.lineage, marks=marks)

    def _join(self, order: Restore, kept: Model, read: Model) -> bool:
        """What was read stands beside what was kept.  False: a newer order was taken meanwhile."""
        for number in read.buckets:
            contents = dict(read.content(number))
            with self._shell.lock:
                if self._shell.state.restoring is not order:
                    return False
                kept.install(number, contents)
            read.remove(PositionSet.of(number))
        return True

    def _write(self, order: WriteFork, forked: ForkedModel) -> Event | None:
        author = Author(
            server=self._name,
            incarnation=self._shell.state.incarnation,
            bucket_count=forked.layout.bucket_count,
            tables=forked.layout.tables,
        )

        def read(forked: ForkedModel, number: int) -> BucketArrays:
            with self._shell.lock:
                cut = self._shell.state.cut
                if cut is None or cut.cut != order.cut or cut.phase is not Phase.SEALED:
                    raise ForkGoneError
                return list(forked.read(number))

        return write_fork(self._shell.outside.storage, author, order, forked, read)


def _is_damage(error: EdlError) -> bool:
    """The bytes are not those of the checkpoint; of a folder that does not answer nobody can say that."""
    cause = error.__cause__
    return not isinstance(cause, StorageError) or isinstance(cause, StorageMissingError | StorageAlteredError)
