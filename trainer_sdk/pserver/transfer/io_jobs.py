"""Loading a model and writing a fork's file, each in a thread of its own, without the lock but for moments.

RESTORE reads this server's buckets from the base's files, or makes them from the initialisers where there are none.
The files may come from another number of servers: they are read by bucket, and every byte that is used has been
compared with its digest.  An error names the file.

The result of a job goes to the core as an event.  Copies to other servers are in `bucket_sender`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from master.api.checkpoints.storage import Storage
from master.api.errors import StorageAlteredError, StorageError, StorageMissingError
from master.api.identities import MemberName
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import CheckpointError, EdlError, TableError
from trainer_sdk.pserver.core.server_events import (
    FileFailed,
    FileWritten,
    LoadFailed,
    LoadModel,
    ModelLoaded,
    ServerEvent,
    WriteFork,
)
from trainer_sdk.pserver.core.server_state import CutPhase
from trainer_sdk.pserver.shell import Shell
from trainer_sdk.pserver.tables.bucket_codec import decode_bucket, encode_bucket
from trainer_sdk.pserver.tables.layout import Array, Layout
from trainer_sdk.pserver.tables.model import ForkedModel, Model
from trainer_sdk.pserver.transfer.checkpoint_file import CheckpointAuthor, read_buckets, write_checkpoint

log = logging.getLogger(__name__)


class IoJobs:
    """Background jobs of one server, started under its lock.  Only the newest load and file count; others end early."""

    def __init__(self, name: MemberName, shell: Shell) -> None:
        self._name, self._shell = name, shell

    def load(self, effect: LoadModel) -> None:
        """Starts loading; it ends in ModelLoaded or LoadFailed, unless a newer order comes before."""
        self._start(self._load, effect, self._shell.model)

    def write(self, order: WriteFork) -> None:
        """Starts writing; it ends in FileWritten or FileFailed, unless the fork ends before."""
        self._start(self._write, order, ForkedModel(self._shell.loaded()))

    def _start(self, work: Callable[..., ServerEvent | None], *args: object) -> None:
        def run() -> None:
            try:
                event = work(*args)
                if event is not None:
                    self._shell.control(event)
            except BaseException as error:
                self._shell.context.fatal(error)
                raise

        threading.Thread(target=run, name=work.__name__, daemon=True).start()

    def _load(self, effect: LoadModel, kept: Model | None) -> ServerEvent | None:
        order, begun = effect.restore, time.monotonic()
        missing = (order.buckets | order.standby) - effect.kept
        try:
            read, marks = load_model(self._shell.context.storage, replace(order, buckets=missing, standby=EMPTY))
        except (CheckpointError, TableError) as error:
            return LoadFailed(lineage=order.lineage, message=str(error), is_damaged=_is_damage(error))
        if kept is not None and not self._merge(order, kept, read):
            return None
        with self._shell.lock:
            if not self._shell.install_model(order, kept or read):
                return None
        outcome = (order.lineage, time.monotonic() - begun, len(effect.kept), len(missing))
        log.info("lineage %d: model ready after %.2f s, %d buckets kept, %d read", *outcome)
        return ModelLoaded(lineage=order.lineage, marks=marks)

    def _merge(self, order: Restore, kept: Model, read: Model) -> bool:
        """Adds the buckets that were read to those that were kept; False: a newer order was taken meanwhile."""
        for number in read.buckets:
            contents = dict(read.content(number))
            with self._shell.lock:
                if self._shell.state.restoring is not order:
                    return False
                kept.install(number, contents)
            read.remove(PositionSet.of(number))
        return True

    def _write(self, order: WriteFork, forked: ForkedModel) -> ServerEvent | None:
        author = CheckpointAuthor(
            server=self._name,
            incarnation=self._shell.state.incarnation,
            bucket_count=forked.layout.bucket_count,
            tables=forked.layout.tables,
        )

        def read(forked: ForkedModel, number: int) -> BucketArrays:
            with self._shell.lock:
                cut = self._shell.state.cut
                if cut is None or cut.cut != order.cut or cut.phase is not CutPhase.SEALED:
                    raise ForkGoneError
                return list(forked.read(number))

        return write_fork(self._shell.context.storage, author, order, forked, read)


def _is_damage(error: EdlError) -> bool:
    """True if the bytes are not those of the checkpoint; a folder that does not answer is no damage."""
    cause = error.__cause__
    return not isinstance(cause, StorageError) or isinstance(cause, StorageMissingError | StorageAlteredError)


BucketArrays = Iterable[tuple[str, Mapping[str, Array]]]


class ForkGoneError(Exception):
    """The fork whose file is being written has ended; the file is not needed any more."""


def write_fork(
    storage: Storage,
    author: CheckpointAuthor,
    order: WriteFork,
    forked: ForkedModel,
    read: Callable[[ForkedModel, int], BucketArrays],
) -> FileWritten | FileFailed | None:
    """Writes the file of a complete fork; None if `read`, which takes the lock, raised ForkGoneError."""
    forked.arrange()

    def read_bucket(number: int) -> list[memoryview]:
        return encode_bucket(read(forked, number), forked.layout.bucket_count)

    try:
        record = write_checkpoint(storage, author, order.cut, order.marks, read_bucket)
    except ForkGoneError:
        return None
    except StorageError as error:
        return FileFailed(cut=order.cut, message=str(error))
    return FileWritten(cut=order.cut, file=record)


def load_model(storage: Storage, order: Restore) -> tuple[Model, tuple[BucketMarks, ...]]:
    """Model and marks of the base.  Raises CheckpointError or TableError."""
    here = order.buckets | order.standby
    model = Model(Layout.of(order.tables, order.bucket_count), here)
    missing = here if order.base is not None else EMPTY
    marks: list[BucketMarks] = []
    for record in order.files:
        try:
            for bucket, data in read_buckets(storage, record, missing):
                _install(model, record.name, bucket, decode_bucket(record.name, data, order.bucket_count))
        except StorageError as error:
            raise CheckpointError(record.name, str(error)) from error
        missing -= PositionSet.of(*(extent[0] for extent in record.extents))
        marks += _checked_marks(order, record.name, record.marks)
    if missing:
        raise CheckpointError(str(order.base), f"no file of this checkpoint holds buckets {missing}")
    return model, tuple(marks)


def _install(model: Model, file: str, bucket: int, contents: dict[str, dict[str, Array]]) -> None:
    try:
        model.install(bucket, contents)
    except (ValueError, KeyError, IndexError) as error:
        tables = ", ".join(contents)
        raise CheckpointError(file, f"bucket {bucket} does not fit the tables ({tables}): {error}") from error


def _checked_marks(order: Restore, file: str, marks: tuple[BucketMarks, ...]) -> tuple[BucketMarks, ...]:
    """The file's marks as the manifest records them; CheckpointError unless they are its data state (rule 22)."""
    for group in marks:
        if group.applied != order.data:
            raise CheckpointError(file, f"has applied {group.applied}, but its manifest says {order.data}")
    return marks
