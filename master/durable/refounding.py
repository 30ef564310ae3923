"""Refounding: transactions that rebuild a job's records in the store from its checkpoint folder (M8, M11, ADR 0189).

The store changes first, since it refuses a term that is over; the folder follows, and the record of the refounding says
whether it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from master.api.checkpoints.manifest import Manifest
from master.api.document import encode_document
from master.api.identities import Lineage, Term
from master.durable.transactions import durable_keys, head_id, read_record
from master.job.domain.durable_records import DatasetRecord, LineageRecord, RefoundingRecord
from master.store.job_keys import JobKeys, Key
from master.store.store_port import Absent, Comparison, Delete, Put, Revision, StoreSnapshot, Transaction, ValueIs


def is_empty(snapshot: StoreSnapshot, keys: JobKeys) -> bool:
    """True for a new job, or a store that has lost everything."""
    return not any(key in snapshot.entries for key in durable_keys(keys))


def refounding_transaction(
    head: Manifest,
    above: Lineage,
    keys: JobKeys,
    before: StoreSnapshot,
    term: Term,
    *,
    record: RefoundingRecord | None = None,
) -> Transaction:
    """The transaction after which the job continues from `head`, whatever the store contains (M8, rule 29).

    The number of servers stays.  The new lineage is above all in folder and store, so nothing older is mistaken for
    it.  `record`: what this term or a later one has to do in the folder for it.
    """
    known = read_record(LineageRecord, before, keys.lineage)
    number = 1 + max(head.lineage, above, known.number if known else 0)
    lineage = LineageRecord(number=Lineage(number), base=head.id, quarantine=head.quarantine)
    dataset = DatasetRecord(dataset=head.dataset, tables=head.tables)
    return Transaction(
        term=term,
        writes=(
            Put(keys.head, head.id.encode()),
            Put(keys.lineage, encode_document(lineage)),
            Put(keys.dataset, encode_document(dataset)),
            *(Delete(key) for key in _known(keys, before) if key not in (keys.head, keys.lineage, keys.dataset)),
            *((Put(keys.refounding, encode_document(record)),) if record else ()),
        ),
        require=_require_unchanged((*durable_keys(keys), keys.refounding), before),
    )


def clear_transaction(record: RefoundingRecord, keys: JobKeys, before: StoreSnapshot, term: Term) -> Transaction:
    """The transaction after which the job starts from zero: only the number of servers and the used lineages stay."""
    return Transaction(
        term=term,
        writes=(Put(keys.refounding, encode_document(record)), *map(Delete, _known(keys, before))),
        require=_require_unchanged((*durable_keys(keys), keys.refounding), before),
    )


def open_refounding(snapshot: StoreSnapshot, keys: JobKeys) -> RefoundingRecord | None:
    """The refounding that the checkpoint folder may not have followed; None: it has.  Raises PermanentError."""
    record = read_record(RefoundingRecord, snapshot, keys.refounding)
    is_open = record is not None and not record.is_set_aside and record.base == head_id(snapshot, keys)
    return record if is_open else None


def set_aside_done_transaction(
    record: RefoundingRecord, keys: JobKeys, before: StoreSnapshot, term: Term
) -> Transaction:
    """The transaction after the folder's files were set aside."""
    done = Put(keys.refounding, encode_document(replace(record, is_set_aside=True)))
    return Transaction(term=term, writes=(done,), require=_require_unchanged((keys.refounding,), before))


def fallback_note(snapshot: StoreSnapshot, keys: JobKeys) -> str:
    """The note on a fallback while the lineage continues from its checkpoint; empty: there is none."""
    record = read_record(RefoundingRecord, snapshot, keys.refounding)
    lineage = read_record(LineageRecord, snapshot, keys.lineage)
    return record.fallback_note if record and lineage and lineage.base == record.base else ""


def last_change(snapshot: StoreSnapshot, keys: JobKeys) -> Revision:
    """The revision at which a durable record changed last; 0: there is none."""
    found = (snapshot.entries.get(key) for key in durable_keys(keys))
    return max((entry.mod_revision for entry in found if entry), default=Revision(0))


def _known(keys: JobKeys, before: StoreSnapshot) -> tuple[Key, ...]:
    """The keys of all records but the number of servers, which the cluster side sets, and a group's generation."""
    stay = (keys.servers, keys.generation)
    return tuple(key for key in durable_keys(keys) if key in before.entries and key not in stay)


def requested_start_transaction(text: str, keys: JobKeys, before: StoreSnapshot, term: Term) -> Transaction:
    """The transaction that records which requested start was carried out."""
    return Transaction(
        term=term, writes=(Put(keys.start, text.encode()),), require=_require_unchanged((keys.start,), before)
    )


def _require_unchanged(keys: Iterable[Key], before: StoreSnapshot) -> tuple[Comparison, ...]:
    found = ((key, before.try_value(key)) for key in keys)
    return tuple(Absent(key) if value is None else ValueIs(key, value) for key, value in found)
