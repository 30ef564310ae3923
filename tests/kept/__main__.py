"""`python -m tests.kept`: writes `tests/kept/vN` as this EDL does, N the newest version of its formats.

For a format that changes before its first release, or a new version; the folder of a released version never changes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.manifest import MANIFEST_VERSION, Manifest
from master.api.document import encode_document
from master.api.identities import (
    BucketId,
    CutId,
    DatasetSpec,
    HistoryId,
    Incarnation,
    Initialiser,
    Lineage,
    ManifestId,
    MemberName,
    OptimiserSpec,
    Route,
    ServerPlace,
    TableSpec,
    Term,
    Version,
)
from master.api.messages.checkpoint_files import BucketMarks
from master.api.positions import PositionSet
from master.job.domain.durable_records import Backups, DatasetRecord, Intent, IntentsRecord, LineageRecord, MemberKey
from trainer_sdk.pserver.tables.bucket_codec import encode_bucket
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model
from trainer_sdk.pserver.transfer.checkpoint_file import INDEX_VERSION, CheckpointAuthor, write_checkpoint

BUCKETS: Final = 4
DATASET: Final = DatasetSpec(name="digits", size=100, epochs=2, batch_size=16, seed=7)
TABLES: Final = (
    TableSpec(name="w", shape=(6, 4), optimiser=OptimiserSpec(kind="adam", learning_rate=0.05)),
    TableSpec(name="e", shape=(10, 2), kind="sparse", initialiser=Initialiser(kind="normal", scale=0.1, seed=3)),
)
SERVERS: Final = (
    MemberKey(name=MemberName("kept-server-0"), incarnation=Incarnation("0123456789ab")),
    MemberKey(name=MemberName("kept-server-1"), incarnation=Incarnation("ba9876543210")),
)
QUARANTINE: Final = PositionSet.span(64, 66)
PARENT: Final = ManifestId("000001-0000000005-000009")
LINEAGE: Final = Lineage(2)
RECORDS: Final[Mapping[str, Any]] = {
    "lineage": LineageRecord(number=LINEAGE, base=PARENT, quarantine=QUARANTINE),
    "dataset": DatasetRecord(dataset=DATASET, tables=TABLES),
    "route": Route(
        revision=4,
        lineage=LINEAGE,
        servers=tuple(
            ServerPlace(name=key.name, incarnation=key.incarnation, address=f"127.0.0.1:{7 + ordinal}", ordinal=ordinal)
            for ordinal, key in enumerate(SERVERS)
        ),
        owner=(0, 0, 1, 1),
        version=tuple(map(Version, (0, 2, 0, 1))),
    ),
    "intents": IntentsRecord(
        intents=(
            Intent(
                bucket=BucketId(1),
                lineage=LINEAGE,
                version=Version(2),
                source=SERVERS[0],
                target=SERVERS[1],
                reason="resize",
            ),
        )
    ),
    "backups": Backups(
        backup=(1, 1, 0, 0),
        owner_since=tuple(map(Version, (0, 0, 0, 0))),
        backup_since=tuple(map(Version, (0, 0, 0, 0))),
    ),
}


def write(folder: Path) -> None:
    """Write a checkpoint of two tables, HEAD, and one durable record of each kind."""
    storage = LocalStorage(folder)
    data = PositionSet.span(0, 64) | PositionSet.span(80, 96)
    everything = PositionSet.span(0, BUCKETS)
    model = Model(Layout.of(TABLES, BUCKETS), everything)
    author = CheckpointAuthor(
        server=SERVERS[0].name, incarnation=SERVERS[0].incarnation, bucket_count=BUCKETS, tables=TABLES
    )
    cut = CutId(term=Term(7), lineage=LINEAGE, sequence=3)
    marks = (BucketMarks(buckets=everything, applied=data, skipped=QUARANTINE),)
    file = write_checkpoint(storage, author, cut, marks, lambda bucket: encode_bucket(model.content(bucket), BUCKETS))
    manifest = Manifest(
        id=ManifestId("000002-0000000007-000003-5f3a9c21"),
        parent=PARENT,
        lineage=LINEAGE,
        term=cut.term,
        data=data,
        quarantine=QUARANTINE,
        files=(file,),
        dataset=DATASET,
        tables=TABLES,
        bucket_count=BUCKETS,
        step=5,
        created_at_s=1795000000.25,
        history=HistoryId("kept"),
        founded=LINEAGE,
    )
    write_manifest(storage, manifest)
    write_head_hint(storage, manifest.id)
    records = folder / "records"
    records.mkdir(exist_ok=True)
    for name, record in RECORDS.items():
        (records / f"{name}.json").write_bytes(encode_document(record))


if __name__ == "__main__":
    write(Path(__file__).parent / f"v{max(MANIFEST_VERSION, INDEX_VERSION)}")
