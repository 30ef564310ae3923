"""Dense tables of parameter servers as tensors, put together from the buckets of all servers' files.

Sparse tables are left out: a row that no trainer has touched is in no file, and its initial value is a function of the
table.  Optimisers' slots are left out as well.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.storage import Storage
from master.api.positions import PositionSet
from trainer_sdk.errors import CheckpointError
from trainer_sdk.export.saved_tensors import MODEL, SavedPart, SavedTensor
from trainer_sdk.group.port import HostArray
from trainer_sdk.pserver.tables.bucket_codec import check_contents, decode_bucket
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.optimisers import UPDATE_RULES
from trainer_sdk.pserver.transfer.checkpoint_file import read_buckets


def tables_part(storage: Storage, manifest: Manifest) -> SavedPart:
    """The dense tables as the part "model"; read when the first one is loaded."""
    layout = Layout.of(manifest.tables, manifest.bucket_count)
    load_all = cache(lambda: _read_tables(storage, manifest, layout))

    def tensor(index: int) -> SavedTensor:
        spec = layout.tables[index]
        return SavedTensor(
            dtype=spec.dtype,
            carrier=layout.dtypes[index],
            shape=spec.shape,
            source=spec.name,
            load=lambda: load_all()[spec.name],
        )

    return SavedPart(
        name=MODEL,
        tensors={spec.name: tensor(i) for i, spec in enumerate(layout.tables) if layout.dense[i] is not None},
        left_out=tuple(f"{spec.name} (sparse)" for i, spec in enumerate(layout.tables) if layout.dense[i] is None),
    )


def _read_tables(storage: Storage, manifest: Manifest, layout: Layout) -> dict[str, HostArray]:
    """Raises CheckpointError or TableError unless each bucket is in one of the files, and fits; StorageError."""
    tables = [(spec, dense) for spec, dense in zip(layout.tables, layout.dense, strict=True) if dense is not None]
    flat: dict[str, HostArray] = {spec.name: np.zeros(dense.size, dtype=spec.dtype) for spec, dense in tables}
    missing = PositionSet.span(0, manifest.bucket_count)
    for file in manifest.files:
        for bucket, data in read_buckets(storage, file, missing):
            contents = decode_bucket(file.name, data, manifest.bucket_count)
            check_contents(layout, bucket, contents)
            for spec, dense in tables:
                for start, end in dense.runs(PositionSet.of(bucket)):  # one or none
                    values = UPDATE_RULES[spec.optimiser.kind].arrays[0]
                    flat[spec.name][start:end] = contents[spec.name][values].reshape(-1)
        missing -= PositionSet.of(*(extent[0] for extent in file.extents))
    if missing:
        raise CheckpointError(str(manifest.id), f"no file of this checkpoint holds buckets {missing}")
    return {spec.name: flat[spec.name].reshape(spec.shape) for spec, _ in tables}
