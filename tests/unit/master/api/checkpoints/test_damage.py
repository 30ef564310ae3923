"""A thousand ways to harm a folder: a job starts from the right state or is refused by the file's name (M11).

Every byte of every kind of file is in reach: what is flipped, cut, zeroed, removed or exchanged is found, or the state
that is loaded is that of the untouched folder, to the last bit.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from master.api.checkpoints.audit import write_head_hint
from master.api.checkpoints.checkpoint_files import write_manifest
from master.api.checkpoints.local_storage import LocalStorage
from master.api.checkpoints.resume import find_start
from master.api.checkpoints.verification import verify_folder
from master.api.errors import ContractError
from master.api.identities import (
    CutId,
    Incarnation,
    Lineage,
    ManifestId,
    MemberName,
    OptimiserSpec,
    TableSpec,
    Term,
    Version,
)
from master.api.messages.checkpoint_files import BucketMarks
from master.api.messages.to_members import Restore
from master.api.positions import EMPTY, PositionSet
from master.durable.checkpoint_folder import CheckpointFolder
from tests.unit.master.api.checkpoints.test_manifest_codec import MANIFEST
from trainer_sdk.errors import CheckpointError
from trainer_sdk.pserver.tables.bucket_codec import encode_bucket
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model
from trainer_sdk.pserver.transfer.checkpoint_file import CheckpointAuthor, write_checkpoint
from trainer_sdk.pserver.transfer.io_jobs import load_model

CASES = 1000
BUCKETS = 4
TABLES = (
    TableSpec(name="w", shape=(16, 4), optimiser=OptimiserSpec(kind="adam")),
    TableSpec(name="e", shape=(12, 2), kind="sparse"),
)
HARMS = ("flip", "zero", "truncate", "append", "insert", "delete", "exchange", "repeat")


def fill(model, seed):
    """Values that no initialiser makes."""
    for bucket in range(BUCKETS):
        contents = {name: dict(arrays) for name, arrays in model.content(bucket)}
        for arrays in contents.values():
            for key, array in arrays.items():
                if array.dtype.kind == "f":
                    arrays[key] = np.full_like(array, seed + bucket + 0.5)
        model.install(bucket, contents)


def committed(storage, sequence, parent):
    """A checkpoint of two servers, with values of its own."""
    model = Model(Layout.of(TABLES, BUCKETS), PositionSet.span(0, BUCKETS))
    fill(model, 10.0 * sequence)
    data = PositionSet.span(0, 100 * sequence)
    files = []
    for server, buckets in enumerate((PositionSet.span(0, 2), PositionSet.span(2, 4))):
        author = CheckpointAuthor(
            server=MemberName(f"digits-server-{server}"),
            incarnation=Incarnation(f"{server}{sequence}ab"),
            bucket_count=BUCKETS,
            tables=TABLES,
        )
        cut = CutId(term=Term(7), lineage=Lineage(1), sequence=sequence)
        marks = (BucketMarks(buckets=buckets, applied=data),)
        files.append(
            write_checkpoint(storage, author, cut, marks, lambda b, m=model: encode_bucket(m.content(b), BUCKETS))
        )
    manifest = replace(
        MANIFEST,
        id=ManifestId(f"000001-0000000007-{sequence:06d}-5f3a"),
        parent=parent,
        data=data,
        quarantine=EMPTY,
        files=tuple(files),
        tables=TABLES,
        step=sequence,
        bucket_count=BUCKETS,
    )
    write_manifest(storage, manifest)
    return manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three checkpoints: one retired, head, and a newer one that was not committed."""
    storage = LocalStorage(tmp_path_factory.mktemp("checkpoints"))
    first = committed(storage, 1, None)
    head = committed(storage, 2, first.id)
    write_head_hint(storage, head.id)
    CheckpointFolder(storage).retain(frozenset({head.id}))
    committed(storage, 3, head.id)
    assert len(storage.list()) == 10
    return storage


def started(storage):
    """What a job begins with, to the last bit: the manifest, and each server's buckets and marks."""
    manifest = find_start(storage, None, now_s=0.0)
    if manifest is None:
        return None
    state = [manifest]
    for buckets in (PositionSet.span(0, 3), PositionSet.span(3, 4)):  # other servers than those that wrote
        order = Restore(
            incarnation=Incarnation("x"),
            lineage=Lineage(2),
            base=manifest.id,
            files=manifest.files,
            data=manifest.data,
            quarantine=manifest.quarantine,
            tables=manifest.tables,
            bucket_count=manifest.bucket_count,
            buckets=buckets,
            version=Version(0),
        )
        model, marks = load_model(storage, order)
        state.append(marks)
        state += [b"".join(encode_bucket(model.content(bucket), BUCKETS)) for bucket in buckets]
    return state


def attempted(storage):
    """What a job begins with, or the words with which it is refused."""
    try:
        return started(storage), ""
    except (ContractError, CheckpointError) as error:
        return None, str(error)


def harmed(rng, harm, path, others):
    """The folder with one file harmed; the names that a refusal may give, and a way back."""
    good = path.read_bytes()
    other = rng.choice([one for one in others if one != path])
    others_good = other.read_bytes()
    at = rng.randrange(len(good))
    length = min(rng.choice((1, 1, 4, 64)), len(good) - at)
    match harm:
        case "flip":
            bad = good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :]
        case "zero":
            bad = good[:at] + bytes(length) + good[at + length :]
        case "truncate":
            bad = good[:at]
        case "append":
            bad = good + rng.randbytes(length)
        case "insert":
            bad = good[:at] + rng.randbytes(length) + good[at:]
        case "repeat":
            bad = good[: at + length] + good[at:]
        case "exchange":
            bad = others_good
            other.write_bytes(good)
        case _:
            bad = None
    if bad is None:
        path.unlink()
    else:
        path.write_bytes(bad)
    names = {path.name, other.name} if harm == "exchange" else {path.name}
    is_harmed = bad != good

    def restore():
        path.write_bytes(good)
        other.write_bytes(others_good)

    return names, is_harmed, restore


def test_a_thousand_harms_end_in_the_right_state_or_a_refusal_that_names_the_file(folder):
    """Of each kind of file each byte region; and `edl data verify` finds every byte that was changed."""
    rng, right = random.Random(20261122), started(folder)
    files = [folder._folder / name for name in folder.list()]
    refused, accepted = 0, 0
    for case in range(CASES):
        path, harm = files[case % len(files)], HARMS[(case // len(files)) % len(HARMS)]
        names, is_harmed, restore = harmed(rng, harm, path, files)
        told = f"case {case}: {harm} of {path.name}"
        try:
            if is_harmed and harm != "delete":
                assert not verify_folder(folder).is_intact, f"{told}: verified as intact"
            state, words = attempted(folder)
        finally:
            restore()
        if words:
            assert any(name in words for name in names), f"{told}: refused without its name: {words}"
            refused += 1
        else:
            assert state == right, f"{told}: a wrong start"
            accepted += 1
    assert started(folder) == right
    assert refused > CASES // 3, (refused, accepted)
    assert accepted > 0
