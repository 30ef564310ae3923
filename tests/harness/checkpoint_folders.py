"""Checkpoint folders as members of a job and its master write them: of a group, and of parameter servers."""

from dataclasses import replace

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.manifest import Manifest
from master.api.group_shares import data_of
from master.api.identities import (
    CutId,
    DatasetSpec,
    HistoryId,
    Incarnation,
    Lineage,
    ManifestId,
    MemberName,
    TableSpec,
    Term,
)
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.generations import StateId
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.group.array_cuts import shard_of
from trainer_sdk.group.port import CapturedState
from trainer_sdk.group.replica_files import write_shard
from trainer_sdk.pserver.tables.bucket_codec import encode_bucket
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model
from trainer_sdk.pserver.transfer.checkpoint_file import CheckpointAuthor, write_checkpoint

DATASET = DatasetSpec(name="digits", size=7, epochs=2, batch_size=3, seed=1)  # three steps an epoch


def commit_copy(
    storage: LocalStorage,
    captured: CapturedState,
    *,
    step: int,
    skipped: PositionSet = EMPTY,
    parent: Manifest | None = None,
    shards: int = 1,
) -> Manifest:
    """The checkpoint of this step, which is the folder's last one."""
    state = StateId(lineage=Lineage(2), generation=5, step=step)
    records = []
    for shard in range(shards):
        name, part = f"replica-{step}-{shard}.safetensors", shard_of(captured, shard, shards)
        records.append(write_shard(storage, name, part, dataset=DATASET, state=state, skipped=skipped)[0])
    manifest = _manifest(f"000002-0000000001-{step:06}-0a", data=data_of(DATASET, step) - skipped, step=step)
    return _commit(
        storage,
        replace(
            manifest,
            parent=None if parent is None else parent.id,
            lineage=state.lineage,
            quarantine=skipped,
            files=tuple(records),
            bucket_count=shards,
            state=state,
        ),
    )


def alter(storage: LocalStorage, manifest: Manifest) -> None:
    """Changes a byte of the checkpoint's file."""
    (file,) = manifest.files
    content = bytearray(storage.read(file.name))
    content[len(content) // 2] ^= 1
    storage.write_file(file.name, [content])


def commit_tables(storage: LocalStorage, tables: tuple[TableSpec, ...], servers: tuple[PositionSet, ...]) -> Model:
    """A checkpoint of fresh tables, in a file of each server; `servers`: the buckets of each.  Returns the model."""
    bucket_count, cut = sum(map(len, servers)), CutId(term=Term(1), lineage=Lineage(1), sequence=1)
    model = Model(Layout.of(tables, bucket_count), PositionSet.span(0, bucket_count))
    data = PositionSet.span(0, DATASET.size)
    manifest = _manifest("000001-0000000001-000001-0b", data=data, step=3)
    files = tuple(
        write_checkpoint(
            storage,
            CheckpointAuthor(
                server=MemberName(f"server-{ordinal}"),
                incarnation=Incarnation("i"),
                bucket_count=bucket_count,
                tables=tables,
            ),
            cut,
            (BucketMarks(buckets=buckets, applied=data),),
            lambda bucket: encode_bucket(model.content(bucket), bucket_count),
        )
        for ordinal, buckets in enumerate(servers)
    )
    _commit(storage, replace(manifest, files=files, tables=tables, bucket_count=bucket_count))
    return model


def commit_plain(storage: LocalStorage) -> Manifest:
    """A checkpoint of plain sharding, which holds no model."""
    return _commit(storage, _manifest("000001-0000000001-000001-0c", data=PositionSet.span(0, DATASET.size), step=3))


def _manifest(name: str, *, data: PositionSet, step: int) -> Manifest:
    return Manifest(
        id=ManifestId(name),
        parent=None,
        lineage=Lineage(1),
        term=Term(1),
        data=data,
        quarantine=EMPTY,
        files=(),
        dataset=DATASET,
        tables=(),
        bucket_count=1,
        step=step,
        created_at_s=1e9 + step,
        history=HistoryId("0123456789ab"),
        founded=Lineage(1),
    )


def _commit(storage: LocalStorage, manifest: Manifest) -> Manifest:
    write_manifest(storage, manifest)
    write_head_hint(storage, manifest.id)
    return manifest
