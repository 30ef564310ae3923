"""WRITE FORK carried out: the file of a complete fork, bucket by bucket, while the live model goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from master.api.errors import StorageError
from master.api.storage import Storage
from trainer_sdk.pserver.bucket_bytes import encode_bucket
from trainer_sdk.pserver.checkpoint_file import Author, write_checkpoint
from trainer_sdk.pserver.layout import Array
from trainer_sdk.pserver.messages import FileFailed, FileWritten, WriteFork
from trainer_sdk.pserver.tables import ForkedModel

BucketArrays = Iterable[tuple[str, Mapping[str, Array]]]


class ForkGoneError(Exception):
    """The fork whose file is being written has ended; the file is not wanted any more."""


def write_fork(
    storage: Storage,
    author: Author,
    order: WriteFork,
    forked: ForkedModel,
    read: Callable[[ForkedModel, int], BucketArrays],
) -> FileWritten | FileFailed | None:
    """The file is complete, or was not to be had; None: `read`, which takes the lock, raised ForkGoneError."""
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
