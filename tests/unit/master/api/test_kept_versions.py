"""What an older EDL wrote is read by this one, never taken for nothing: a kept file of each version (M11, ADR 0403).

`tests/kept/vN` holds a checkpoint folder and durable records as version N of EDL's formats wrote them; never changed.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from master.api.checkpoints.checkpoint_files import read_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.manifest import FORM, OLDEST_HISTORY, decode_manifest, encode_manifest
from master.api.checkpoints.resume import find_start
from master.api.checkpoints.verification import verify_folder
from master.api.document import encode_plain, parse_json
from master.api.errors import DocumentError
from master.api.format_version import Form
from master.api.identities import Lineage, OptimiserSpec, Route
from master.api.positions import PositionSet
from master.durable import record_codec
from master.durable.record_codec import FORMS, decode_record, encode_record, restating, try_record
from master.errors import PermanentError
from master.job.domain import Backups, DatasetRecord, IntentsRecord, LineageRecord
from master.store.job_keys import JobKeys
from master.store.memory_store import MemoryCluster
from master.store.store_port import Put, Transaction
from trainer_sdk.pserver.transfer.checkpoint_file import INDEX_FORM, read_index

KEPT = Path(__file__).parents[3] / "kept"
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
    assert verify_folder(storage).is_whole
    (file,) = manifest.files
    assert read_index(storage, file.name, file.size_bytes).tables == manifest.tables


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", RECORDS)
def test_a_kept_record_is_read(folder, name):
    """Of a job that goes on while EDL is upgraded."""
    record = decode_record(RECORDS[name], (folder / "records" / f"{name}.json").read_bytes())
    assert decode_record(RECORDS[name], encode_record(record)) == record


def test_every_version_has_its_kept_file():
    """A form that gets a step gets a kept file of what it was before."""
    newest = max(FORM.version, INDEX_FORM.version, *(form.version for form in FORMS.values()))
    assert {path.name for path in VERSIONS} == {f"v{number}" for number in range(1, newest + 1)}


def test_the_first_version_of_a_manifest_is_of_the_oldest_history():
    """All that it wrote in one folder counts as one; an upgraded one is written in today's form."""
    manifest = find_start(LocalStorage(KEPT / "v1"), None, now_s=0.0)
    assert (manifest.history, manifest.founded) == (OLDEST_HISTORY, Lineage(2))
    assert decode_manifest(encode_manifest(manifest)) == manifest


def put_decay_back(plain):
    """As the step that comes with a new field of the optimiser: what older tables meant by its absence."""
    return plain | {
        "tables": [one | {"optimiser": {"second_decay": 0.999} | one["optimiser"]} for one in plain["tables"]]
    }


@pytest.fixture
def grown(monkeypatch):
    """Bytes of an EDL whose OptimiserSpec lacked a field that today's has, and today's form with the step for it."""
    old = parse_json((KEPT / "v1" / "records" / "dataset.json").read_bytes())
    for table in old["tables"]:
        del table["optimiser"]["second_decay"]
    with pytest.raises(DocumentError, match="second_decay: is missing"):
        decode_record(DatasetRecord, encode_plain(old))
    monkeypatch.setitem(record_codec.FORMS, DatasetRecord, Form(name="data set record", steps=(put_decay_back,)))
    return encode_plain(old)


async def test_a_field_more_of_the_optimiser_leaves_older_records_readable(grown):
    """They are written anew before a write compares them; what an older EDL then meets, it refuses with words."""
    store = MemoryCluster().store("digits")
    term = (await store.try_lead(holder="me", ttl_s=60)).term
    keys: JobKeys = store.keys
    await store.commit(Transaction(term=term, writes=(Put(keys.dataset, grown),)))
    snapshot = await store.read((keys.dataset,))
    before = try_record(DatasetRecord, snapshot, keys.dataset)
    assert before.tables[0].optimiser.second_decay == 0.999
    await store.commit(restating(snapshot, keys, term))
    after = await store.read((keys.dataset,))
    assert after.try_value(keys.dataset) == encode_record(before)
    assert restating(after, keys, term) is None
    record_codec.FORMS[DatasetRecord] = Form(name="data set record")
    with pytest.raises(PermanentError, match=r"reads a data set record up to version 1\. Upgrade EDL"):
        try_record(DatasetRecord, after, keys.dataset)


def test_a_newer_manifest_is_refused_with_words(tmp_path):
    """Never half read."""
    manifest = read_manifest(LocalStorage(KEPT / "v1"), find_start(LocalStorage(KEPT / "v1"), None, now_s=0.0).id)
    newer = encode_manifest(replace(manifest, data=PositionSet.span(0, 64))).replace(
        f'"version": {FORM.version}'.encode(), f'"version": {FORM.version + 1}'.encode()
    )
    with pytest.raises(DocumentError, match=rf"reads a manifest up to version {FORM.version}. Upgrade EDL"):
        decode_manifest(newer)


@pytest.mark.parametrize("plain", [[], {}, {"tables": 1}, {"tables": [1]}])
def test_a_step_that_meets_something_else_refuses_it(plain):
    """A document that was altered is no reason for a traceback."""
    with pytest.raises(DocumentError, match="is no record"):
        Form(name="record", steps=(put_decay_back,)).upgraded(plain, 1)
