"""Reads the ledger out of checkpoints, and says everything that is wrong with it.

Three questions, of which no answer is taken from the system's own books:

- of each committed checkpoint: are the numbers in its files those of its data state, in every bucket (M1)?
- of each gradient in it: was it computed on values that are in this checkpoint's past, or did it cross a roll-back?
- was the checkpoint that was head before a pull in what the pull saw (live buckets contain head)?

Where servers keep what they have after a loss (rule 30), a gradient may rightly have seen, in the buckets that were
lost, what is no more, and be kept in the others.  Then the second question is asked of each bucket by itself: a
gradient that is in it was computed on what is in it.

The model and the trainers' diaries are explained in `tests/programs/chaos_ledger.py`; rows of sparse tables are
looked at in `tests.chaos.rows`.
"""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.storage import Storage
from master.api.positions import PositionSet
from trainer_sdk.pserver.tables.bucket_codec import decode_bucket
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.transfer.checkpoint_file import read_buckets
from trainer_sdk.record_order import RecordOrder

PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "chaos_ledger.py"
_spec = importlib.util.spec_from_file_location("chaos_ledger", PROGRAM)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One committed checkpoint, read whole.  `seen_at_s`: monotonic instant at which it was known to be head."""

    manifest: Manifest
    tables: dict[str, np.ndarray]
    seen_at_s: float

    @property
    def trained(self) -> np.ndarray:
        """The positions of its data state."""
        return numbers(self.manifest.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saw:
    """What a trainer wrote down before a push."""

    nonce: int
    trainer: str
    positions: PositionSet
    pulled_at_s: float
    changed: np.ndarray  # stamps that were another number at its pull before
    to: np.ndarray
    looked: np.ndarray = field(
        default_factory=lambda: np.zeros((2, 0), dtype=np.int64)
    )  # rows of `firsts`, their values


def numbers(positions: PositionSet) -> np.ndarray:
    ranges = [np.arange(start, stop) for start, stop in positions.ranges()]
    return np.concatenate(ranges) if ranges else np.empty(0, dtype=np.int64)


def read_head(storage: Storage, manifest: Manifest, seen_at_s: float) -> Head:
    """Raises StorageError when a file is gone (retention), CheckpointError when one was altered."""
    layout = Layout.of(manifest.tables, manifest.bucket_count)
    tables = {spec.name: np.zeros(spec.shape, dtype=spec.dtype) for spec in manifest.tables}
    for record in manifest.files:
        for bucket, data in read_buckets(storage, record, PositionSet.span(0, manifest.bucket_count)):
            contents = decode_bucket(record.name, data, manifest.bucket_count)
            for spec, dense in zip(layout.tables, layout.dense, strict=True):
                if spec.name not in contents:
                    continue
                if dense is None:
                    tables[spec.name][contents[spec.name]["ids"]] = contents[spec.name]["values"]
                    continue
                ((start, stop),) = dense.runs(PositionSet.of(bucket))
                tables[spec.name].reshape(-1)[start:stop] = contents[spec.name]["values"]
    return Head(manifest=manifest, tables=tables, seen_at_s=seen_at_s)


def check_head(head: Head) -> list[str]:
    """What in this checkpoint does not agree with its data state."""
    manifest, told = head.manifest, f"checkpoint {head.manifest.id}"
    counts = np.zeros(manifest.dataset.size, dtype=np.int64)
    order = RecordOrder(manifest.dataset)
    for epoch in range(manifest.dataset.epochs):
        start = epoch * manifest.dataset.size
        here = manifest.data & PositionSet.span(start, start + manifest.dataset.size)
        if here:
            np.add.at(counts, order.records(here), 1)
    problems = []
    off = np.flatnonzero(head.tables["counts"] != counts)
    if len(off):
        found = ", ".join(f"{i}: {head.tables['counts'][i]} for {counts[i]}" for i in off[:5])
        problems.append(f"{told}: {len(off)} records are counted wrongly ({found})")
    expected = program.fingerprint(head.trained)
    prints = head.tables["prints"].reshape(manifest.bucket_count, -1)
    wrong = np.flatnonzero((prints != expected).any(axis=1))
    if len(wrong):
        problems.append(f"{told}: {len(wrong)} blocks hold other positions than the data state, as block {wrong[0]}")
    stamped = np.flatnonzero(head.tables["stamps"])
    if not np.array_equal(stamped, head.trained):
        odd = np.setxor1d(stamped, head.trained)
        problems.append(f"{told}: {len(odd)} positions are stamped but not in the data state or the reverse: {odd[:5]}")
    return problems


def check_owners(head: Head) -> list[str]:
    """Each bucket stands in exactly one file (rules 31, 58)."""
    manifest = head.manifest
    if not manifest.tables:
        return []
    named = Counter(bucket for record in manifest.files for marks in record.marks for bucket in marks.buckets)
    wrong = [f"{bucket}: {named[bucket]}" for bucket in range(manifest.bucket_count) if named[bucket] != 1]
    return [f"checkpoint {manifest.id}: buckets that are not in exactly one file: {wrong[:5]}"] if wrong else []


def check_growth(heads: list[Head]) -> list[str]:
    """A later head has all of an earlier one: no committed position is trained again, none is taken back (M6)."""
    problems = []
    for before, after in pairwise(heads):
        told = f"checkpoint {after.manifest.id} after {before.manifest.id}"
        if not before.manifest.data <= after.manifest.data:
            problems.append(f"{told}: lacks {before.manifest.data - after.manifest.data}")
        kept = before.trained
        if (before.tables["stamps"][kept] != after.tables["stamps"][kept]).any():
            problems.append(f"{told}: committed positions were trained anew")
    return problems


def read_diaries(folder: Path) -> list[Saw]:
    """All lines of all processes; one torn at its end by a kill is of a push that never was."""
    seen = []
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_bytes().split(b"\n"):
            try:
                line = json.loads(text)
            except ValueError:
                continue
            seen.append(
                Saw(
                    nonce=line["nonce"],
                    trainer=path.stem,
                    positions=PositionSet(tuple(line["positions"])),
                    pulled_at_s=line["pulled_at_s"],
                    changed=np.asarray(line["changed"], dtype=np.int64),
                    to=np.asarray(line["to"], dtype=np.int64),
                    looked=np.asarray(line["looked"], dtype=np.int64),
                )
            )
    return seen


def buckets_of_stamps(head: Head) -> np.ndarray:
    """The bucket of each position's stamp."""
    manifest = head.manifest
    layout = Layout.of(manifest.tables, manifest.bucket_count)
    ((_, dense),) = ((s, d) for s, d in zip(layout.tables, layout.dense, strict=True) if s.name == "stamps")
    assert dense is not None
    out = np.zeros(len(head.tables["stamps"]), dtype=np.int64)
    for bucket in range(manifest.bucket_count):
        for start, stop in dense.runs(PositionSet.of(bucket)):
            out[start:stop] = bucket
    return out


def check_gradients(last: Head, heads: list[Head], diaries: list[Saw], *, keeps: bool = False) -> list[str]:
    """Of each gradient in the last checkpoint: who made it, and on what.

    A gradient that crossed a roll-back was computed on a stamp that the roll-back took away, so that this cell holds
    another number now.  One that was pulled from a server without the head of its time lacks that head's stamps.
    """
    final = last.tables["stamps"]
    homes = buckets_of_stamps(last) if keeps else np.zeros(len(final), dtype=np.int64)
    landed = set(final[final != 0].tolist())
    known = {line.nonce for line in diaries}
    problems = [
        f"stamp {nonce} comes from no push: a gradient was applied in part or twice" for nonce in landed - known
    ]
    stamps, trainer = np.zeros_like(final), ""
    for line in diaries:
        if line.trainer != trainer:
            stamps, trainer = np.zeros_like(final), line.trainer
        stamps[line.changed] = line.to
        if line.nonce not in landed:
            continue
        told = f"the gradient of {line.positions} by {line.trainer}"
        crossed = np.flatnonzero((stamps != 0) & (stamps != final))
        crossed = crossed[np.isin(homes[crossed], homes[final == line.nonce])]
        if len(crossed):
            problems.append(
                f"{told} crossed a roll-back: it saw {len(crossed)} pushes that were lost, as {crossed[:3]}"
            )
        before = [head for head in heads if head.seen_at_s < line.pulled_at_s]
        if before and (stamps[before[-1].trained] == 0).any():
            problems.append(f"{told} was computed without checkpoint {before[-1].manifest.id}, which was head")
    return problems


def check_end(last: Head) -> list[str]:
    """At the end every position is trained, or in quarantine and listed there."""
    missing = last.manifest.dataset.everything - last.manifest.data - last.manifest.quarantine
    return [f"the last checkpoint lacks {len(missing)} positions: {missing}"] if missing else []


def verdict(heads: list[Head], diaries: list[Saw], *, keeps: bool = False) -> list[str]:
    """All of it, of a job that has ended; empty: every position is in every checkpoint exactly once.

    `keeps`: after a loss the other servers keep what they have.
    """
    if not heads:
        return ["no checkpoint was ever seen"]
    problems = [problem for head in heads for problem in (*check_owners(head), *check_head(head))]
    problems += check_growth(heads) + check_gradients(heads[-1], heads, diaries, keeps=keeps)
    return problems + check_end(heads[-1])
