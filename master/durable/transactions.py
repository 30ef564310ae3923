"""Transactions on a job's durable records: each write of the core as one transaction with its comparisons.

The problem: a new master relies on these eleven values together.  So each write becomes one transaction that
compares what the core built on and changes it in one step.  A value that is compared changes and never comes back
(lineage numbers and manifest ids are new each time), so a lost answer can be settled by reading.  A plain number may
come back (4 servers, 2, 4 again), so its revision is compared (`number_key`).

Pure.  Records are JSON (`api.document`); keys carry the version of what they mean (`/edl/v1/...`).
"""

from __future__ import annotations

from typing import TypeVar, assert_never

from master.api.checkpoints.manifest import Manifest
from master.api.document import decode_document, encode_document
from master.api.errors import DocumentError
from master.api.identities import ManifestId, Route, Term
from master.errors import PermanentError
from master.job.domain.durable_records import (
    Backups,
    ChangeTable,
    DatasetRecord,
    Durable,
    DurableWrite,
    GenerationRecord,
    Intent,
    IntentsRecord,
    LineageRecord,
    ManifestOrigin,
    MemberKey,
    RaiseLineage,
    RecordDataset,
    RecordFinalSave,
    RecordGeneration,
    RecordQuarantine,
    RecordServers,
    ReserveHighWater,
    SwapHead,
    TrainersRecord,
)
from master.store.job_keys import JobKeys, Key
from master.store.store_port import (
    MAX_VALUE_BYTES,
    Absent,
    Comparison,
    Delete,
    Entry,
    Put,
    StoreSnapshot,
    Transaction,
    UnchangedSince,
    ValueIs,
)

_T = TypeVar("_T")


def read_record(cls: type[_T], snapshot: StoreSnapshot, key: Key) -> _T | None:
    """The record under the key; None: there is none.  Raises PermanentError for bytes that this EDL does not read."""
    value = snapshot.try_value(key)
    try:
        return decode_document(cls, value) if value is not None else None
    except DocumentError as error:
        raise PermanentError(f"{key}: {error}. Was it written by another version of EDL?") from error


def durable_keys(keys: JobKeys) -> tuple[Key, ...]:
    """The keys that a new master reads, all at one revision."""
    table = (keys.route, keys.intents, keys.backups)
    return (
        keys.lineage,
        keys.dataset,
        keys.high_water,
        keys.trainers,
        keys.head,
        *table,
        keys.servers,
        keys.generation,
        keys.final_save,
    )


def head_id(snapshot: StoreSnapshot, keys: JobKeys) -> ManifestId | None:
    """The manifest that was committed last."""
    value = snapshot.try_value(keys.head)
    return ManifestId(value.decode()) if value else None


def parse_durable(snapshot: StoreSnapshot, keys: JobKeys, head: Manifest | None, origin: ManifestOrigin) -> Durable:
    """The durable state, with the manifest that `head_id` names.  Raises PermanentError for another EDL's records."""
    high_water, servers = snapshot.try_value(keys.high_water), snapshot.try_value(keys.servers)
    trainers = read_record(TrainersRecord, snapshot, keys.trainers)
    final_save = snapshot.try_value(keys.final_save)
    return Durable(
        lineage=read_record(LineageRecord, snapshot, keys.lineage),
        dataset=read_record(DatasetRecord, snapshot, keys.dataset),
        high_water=int(high_water) if high_water else 0,
        trainers=trainers.trainers if trainers else None,
        head=head,
        route=read_record(Route, snapshot, keys.route),
        intents=_parse_intents(snapshot, keys),
        backups=read_record(Backups, snapshot, keys.backups),
        servers=int(servers) if servers else None,
        generation=read_record(GenerationRecord, snapshot, keys.generation),
        final_save=ManifestId(final_save.decode()) if final_save else None,
        origin=origin,
    )


def number_key(write: DurableWrite, keys: JobKeys) -> Key | None:
    """The key of the plain number that the write replaces, to be read before; None: the write itself has that value."""
    match write:
        case ReserveHighWater():
            return keys.high_water
        case RecordServers():
            return keys.servers
        case _:
            return None


def transaction_of(write: DurableWrite, keys: JobKeys, term: Term, *, number: Entry | None = None) -> Transaction:
    """The write with all that it requires; that `term` leads is the transaction's own requirement.

    `number`: the entry under `number_key`; None: there is none.  An attempt that lands after a newer number changes
    nothing.
    """
    match write:
        case SwapHead():
            return Transaction(
                term=term,
                writes=(Put(keys.head, write.manifest.encode()),),
                require=(
                    _is_id(keys.head, write.parent),
                    _is_record(keys.lineage, write.lineage),
                    *((_is_record(keys.generation, write.generation),) if write.generation else ()),
                ),
            )
        case RecordGeneration():
            return Transaction(
                term=term,
                writes=(Put(keys.generation, encode_document(write.new)),),
                require=(
                    _is_record(keys.generation, write.old),
                    _is_id(keys.head, write.head),
                    _is_record(keys.lineage, write.lineage),
                ),
            )
        case RecordFinalSave():
            return Transaction(
                term=term,
                writes=(Put(keys.final_save, write.manifest.encode()),),
                require=(_is_id(keys.final_save, write.old), _is_id(keys.head, write.manifest)),
            )
        case RaiseLineage():
            route = (Put(keys.route, encode_document(write.route)),) if write.route else ()
            table = (*route, Delete(keys.intents), _backups(write.backups, keys))
            return Transaction(
                term=term,
                writes=(Put(keys.lineage, encode_document(write.new)), *table),
                require=(_is_record(keys.lineage, write.old), _is_id(keys.head, write.new.base)),
            )
        case ChangeTable():
            intents = write.new.intents
            return Transaction(
                term=term,
                writes=(
                    Put(keys.route, encode_document(write.new.route)),
                    Put(keys.intents, encode_document(IntentsRecord(intents=intents)))
                    if intents
                    else Delete(keys.intents),
                    *((_backups(write.new.backups, keys),) if write.old.backups else ()),
                ),
                require=(ValueIs(keys.route, encode_document(write.old.route)),),
            )
        case RecordQuarantine():
            return Transaction(
                term=term,
                writes=(Put(keys.lineage, encode_document(write.new)),),
                require=(_is_record(keys.lineage, write.old),),
            )
        case RecordDataset():
            return Transaction(
                term=term,
                writes=(Put(keys.dataset, encode_document(write.record)),),
                require=(_is_record(keys.dataset, write.old),),
            )
        case ReserveHighWater():
            return _with_number(write.below, keys.high_water, term, number, _trainers(write.trainers, keys))
        case RecordServers():
            return _with_number(write.count, keys.servers, term, number)
        case _:
            assert_never(write)


def _with_number(count: int, key: Key, term: Term, before: Entry | None, *others: Put | Delete) -> Transaction:
    is_as_read = Absent(key) if before is None else UnchangedSince(key, before.mod_revision)
    return Transaction(term=term, writes=(Put(key, str(count).encode()), *others), require=(is_as_read,))


def _trainers(trainers: tuple[MemberKey, ...] | None, keys: JobKeys) -> Put | Delete:
    """Absent where a next master is to take them for unknown, and where their names are more than a value may have."""
    value = None if trainers is None else encode_document(TrainersRecord(trainers=trainers))
    return Delete(keys.trainers) if value is None or len(value) > MAX_VALUE_BYTES else Put(keys.trainers, value)


def _backups(backups: Backups | None, keys: JobKeys) -> Put | Delete:
    return Put(keys.backups, encode_document(backups)) if backups else Delete(keys.backups)


def _is_id(key: Key, manifest: ManifestId | None) -> Comparison:
    return Absent(key) if manifest is None else ValueIs(key, manifest.encode())


def _is_record(key: Key, record: LineageRecord | GenerationRecord | DatasetRecord | None) -> Comparison:
    return Absent(key) if record is None else ValueIs(key, encode_document(record))


def _parse_intents(snapshot: StoreSnapshot, keys: JobKeys) -> tuple[Intent, ...]:
    record = read_record(IntentsRecord, snapshot, keys.intents)
    return record.intents if record else ()
