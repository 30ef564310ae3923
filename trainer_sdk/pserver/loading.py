"""RESTORE carried out: this server's buckets from the base's files, or from the initialisers where there are none.

The files may come from another number of servers: they are read by bucket, and every byte that is used has been
compared with its digest.  What is wrong has the file's name.
"""

from __future__ import annotations

from master.api.errors import StorageError
from master.api.messages import BucketMarks, Restore
from master.api.positions import EMPTY, PositionSet
from master.api.storage import Storage
from trainer_sdk.errors import CheckpointError
from trainer_sdk.pserver.bucket_bytes import decode_bucket
from trainer_sdk.pserver.checkpoint_file import read_buckets
from trainer_sdk.pserver.layout import Array, Layout
from trainer_sdk.pserver.tables import Model


def load_model(storage: Storage, order: Restore) -> tuple[Model, tuple[BucketMarks, ...]]:
    """The model of the base and the marks of its buckets.  Raises CheckpointError or TableError."""
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
    """A checkpoint's data state is what its files say; a manifest that says otherwise is not restored (rule 22)."""
    for group in marks:
        if group.applied != order.data:
            raise CheckpointError(file, f"has applied {group.applied}, but its manifest says {order.data}")
    return marks
