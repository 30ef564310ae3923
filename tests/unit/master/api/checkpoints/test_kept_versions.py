"""What EDL 0.1.0 wrote is read by this EDL, never taken for nothing: a kept file of each version (M11, ADR 0228).

`tests/kept/vN` holds a checkpoint folder and durable records as version N of EDL's formats wrote them.  They do not
change once N is released; until then `python -m tests.kept` writes them.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from master.api.checkpoints.checkpoint_files import read_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.manifest import MANIFEST_VERSION, decode_manifest, encode_manifest
from master.api.checkpoints.resume import find_start
from master.api.checkpoints.verification import verify_folder
from master.api.document import decode_document, encode_document, encode_plain, parse_json
from master.api.errors import DocumentError
from master.api.format_version import check_version
from master.api.identities import Lineage, OptimiserSpec, Route
from master.api.positions import PositionSet
from master.durable.transactions import read_record
from master.errors import PermanentError
from master.job.domain.durable_records import Backups, DatasetRecord, IntentsRecord, LineageRecord
from master.store.memory_store import MemoryCluster
from master.store.store_port import Put, Transaction
from tests.kept.__main__ import write as write_kept_files
from trainer_sdk.pserver.transfer.checkpoint_file import INDEX_VERSION, read_index

KEPT = next(folder for folder in (parent / "kept" for parent in Path(__file__).parents) if folder.is_dir())
VERSIONS = sorted(KEPT.glob("v*"))
RECORDS = {
    "lineage": LineageRecord,
    "dataset": DatasetRecord,
    "route": Route,
    "intents": IntentsRecord,
    "backups": Backups,
}


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_a_kept_checkpoint_is_gone_on_from(folder):
    """Manifest, HEAD, data files and their index; every byte verifies."""
    storage = LocalStorage(folder)
    manifest = find_start(storage, None, now_s=0.0)
    assert len(manifest.data) == 80
    assert manifest.tables[0].optimiser == OptimiserSpec(kind="adam", learning_rate=0.05)
    assert manifest.founded == Lineage(2)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert verify_folder(storage).is_intact
    (file,) = manifest.files
    assert read_index(storage, file.name, file.size_bytes).tables == manifest.tables


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", RECORDS)
def test_a_kept_record_is_read(folder, name):
    """Of a job that goes on while EDL is upgraded."""
    record = decode_document(RECORDS[name], (folder / "records" / f"{name}.json").read_bytes())
    assert decode_document(RECORDS[name], encode_document(record)) == record


def test_this_edl_writes_the_newest_kept_files(tmp_path):
    """A format that changes without a new version shows here, byte by byte."""
    write_kept_files(tmp_path)
    kept = VERSIONS[-1]
    names = {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
    assert names == {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    for name in names:
        assert (tmp_path / name).read_bytes() == (kept / name).read_bytes(), name


def test_every_version_has_its_kept_file():
    """A format whose version is raised gets a kept file of what it was before."""
    newest = max(MANIFEST_VERSION, INDEX_VERSION)
    assert {path.name for path in VERSIONS} == {f"v{number}" for number in range(1, newest + 1)}


@pytest.mark.parametrize("lacks", [True, False])
async def test_a_record_with_other_fields_is_refused_with_words(lacks):
    """A field that is missing or unknown may be another EDL's: nothing is guessed."""
    plain = parse_json((KEPT / "v1" / "records" / "dataset.json").read_bytes())
    for table in plain["tables"]:
        if lacks:
            del table["optimiser"]["beta2"]
        else:
            table["optimiser"]["no_such_field"] = 0.1
    store = MemoryCluster().store("digits")
    term = (await store.try_lead(holder="me", ttl_s=60)).term
    await store.commit(Transaction(term=term, writes=(Put(store.keys.dataset, encode_plain(plain)),)))
    snapshot = await store.read((store.keys.dataset,))
    with pytest.raises(PermanentError, match=r"optimiser\.(beta2|no_such_field): is .*another version of EDL"):
        read_record(DatasetRecord, snapshot, store.keys.dataset)


def test_a_newer_manifest_is_refused_with_words():
    """Never half read."""
    manifest = read_manifest(LocalStorage(KEPT / "v1"), find_start(LocalStorage(KEPT / "v1"), None, now_s=0.0).id)
    newer = encode_manifest(replace(manifest, data=PositionSet.span(0, 64))).replace(
        f'"version": {MANIFEST_VERSION}'.encode(), f'"version": {MANIFEST_VERSION + 1}'.encode()
    )
    with pytest.raises(DocumentError, match=rf"reads a manifest up to version {MANIFEST_VERSION}. Upgrade EDL"):
        decode_manifest(newer)


@pytest.mark.parametrize("version", [None, "1", 0, -1, True, 1.0, 2])
def test_only_the_known_version_is_read(version):
    """A document that was altered is no reason for a traceback."""
    with pytest.raises(DocumentError, match=r"^version: is "):
        check_version("record", version, known=1)
    check_version("record", 1, known=1)
