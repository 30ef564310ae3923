"""A manifest says what its files say, or it is refused."""

import hashlib
import json
from dataclasses import replace

import pytest

from master.api.checkpoints.manifest import (
    MANIFEST_VERSION,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_name,
    try_manifest_id,
)
from master.api.errors import ManifestError
from master.api.identities import BucketId, DatasetSpec, HistoryId, Lineage, ManifestId, TableSpec, Term
from master.api.messages.checkpoint_files import BucketMarks, FileRecord
from master.api.messages.generations import StateId
from master.api.positions import EMPTY, PositionSet

DATA = PositionSet.from_ranges([(0, 900), (960, 1000)])
FILE = FileRecord(
    name="l1-t7-1/server-0.edl",
    size_bytes=4096,
    digest="ab" * 32,
    lineage=Lineage(1),
    marks=(BucketMarks(buckets=PositionSet.span(0, 4), applied=DATA, skipped=PositionSet.of(950)),),
    extents=((BucketId(0), 0, 1024, "cd" * 32), (BucketId(1), 1024, 1024, "ef" * 32)),
)
MANIFEST = Manifest(
    id=ManifestId("l1-t7-1"),
    parent=None,
    lineage=Lineage(1),
    term=Term(7),
    data=DATA,
    quarantine=PositionSet.of(950),
    files=(FILE,),
    dataset=DatasetSpec(name="digits", size=500, epochs=2, batch_size=32),
    tables=(TableSpec(name="w", shape=(64, 10)),),
    bucket_count=4,
    step=31,
    created_at_s=1_700_000_000.5,
    history=HistoryId("h1"),
    founded=Lineage(1),
)


def changed(edit) -> bytes:
    document = json.loads(encode_manifest(MANIFEST))
    edit(document)
    return json.dumps(document).encode()


def resigned(edit) -> bytes:
    """A manifest whose content is wrong but whose digest is right."""

    def edit_and_sign(document):
        edit(document["manifest"])
        signed = {"version": document["version"], "manifest": document["manifest"]}
        body = json.dumps(signed, sort_keys=True, separators=(",", ":"))
        document["digest"] = hashlib.sha256(body.encode()).hexdigest()

    return changed(edit_and_sign)


def test_a_manifest_survives_its_file():
    """What was written is what is read."""
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST
    child = replace(MANIFEST, id=ManifestId("l1-t7-2"), parent=MANIFEST.id, files=(), tables=())
    assert decode_manifest(encode_manifest(child)) == child
    group = replace(child, state=StateId(lineage=Lineage(1), generation=4, step=31))
    assert decode_manifest(encode_manifest(group)) == group


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_a_manifest_cut_short_is_refused(size):
    """A torn file is no manifest (rule 24: not adopting is always safe)."""
    with pytest.raises(ManifestError):
        decode_manifest(encode_manifest(MANIFEST)[:size])


def test_an_altered_manifest_is_refused():
    """One position more than was written is found by the digest."""
    with pytest.raises(ManifestError, match="digest: does not match the content"):
        decode_manifest(encode_manifest(MANIFEST).replace(b"960", b"950"))


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda d: d.update(format="tar"), "format"),
        (lambda d: d.update(version="1"), "version"),
        (lambda d: d.update(version=MANIFEST_VERSION + 1), "version"),
        (lambda d: d.pop("digest"), "digest"),
        (lambda d: d.update(colour="red"), "colour"),
    ],
)
def test_a_foreign_document_is_refused_by_field(edit, field):
    """Skew rule: a newer version is refused with advice, never half read."""
    with pytest.raises(ManifestError) as caught:
        decode_manifest(changed(edit))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda m: m.pop("step"), "step"),
        (lambda m: m.update(step="31"), "step"),
        (lambda m: m.update(step=True), "step"),
        (lambda m: m.update(mood="good"), "mood"),
        (lambda m: m.update(id=""), "id"),
        (lambda m: m.update(data=[[5, 3]]), "data"),
        (lambda m: m["files"][0].update(digest=7), "files[0].digest"),
        (lambda m: m["files"][0]["extents"][1].pop(), "files[0].extents[1]"),
        (lambda m: m["files"][0]["marks"][0].update(applied=[[0, 2, 3]]), "files[0].marks[0].applied"),
        (lambda m: m["tables"][0].update(dtype="float8"), "tables[0].dtype"),
    ],
)
def test_a_wrong_field_is_named(edit, field):
    """The digest being right is no reason to take what cannot be meant."""
    with pytest.raises(ManifestError) as caught:
        decode_manifest(resigned(edit))
    assert caught.value.field == field


def test_completeness_counts_the_quarantine():
    """END only when head's data and quarantine are everything (rule 32)."""
    whole = MANIFEST.dataset.everything
    assert not MANIFEST.is_complete
    assert replace(MANIFEST, data=whole - PositionSet.of(3), quarantine=PositionSet.of(3)).is_complete
    assert replace(MANIFEST, data=whole, quarantine=EMPTY).is_complete


def test_names_find_their_ids():
    """Listing a folder finds the candidates for adoption and nothing else."""
    assert try_manifest_id(manifest_name(MANIFEST.id)) == MANIFEST.id
    assert try_manifest_id("manifest-.json") is None
    assert try_manifest_id("server-0.edl") is None
    with pytest.raises(ManifestError):
        manifest_name(ManifestId("../evil"))
