"""The durable records as bytes, with their versions (`api.versions`, ADR 0403).

What an older EDL wrote is brought up to date as it is read.  A write compares the very bytes that stand in the store,
so a master whose term begins first writes anew what is of an older version (`restating`); from then on an older EDL
refuses those records with the advice to upgrade.  Version 1 bears no number.  Pure.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from master.api.document import encode_plain, from_plain, parse_json, to_plain
from master.api.errors import DocumentError
from master.api.format_version import Form, with_version, without_version
from master.api.identities import Route, Term
from master.errors import PermanentError
from master.job.domain import Backups, DatasetRecord, IntentsRecord, LineageRecord, RefoundingRecord, TrainersRecord
from master.store.job_keys import JobKeys, Key
from master.store.store_port import Put, Snapshot, Transaction, ValueIs

_T = TypeVar("_T")

FORMS: Final[dict[type, Form]] = {
    LineageRecord: Form(name="lineage record"),
    DatasetRecord: Form(name="data set record"),
    Route: Form(name="route"),
    IntentsRecord: Form(name="record of moves"),
    Backups: Form(name="record of second copies"),
    TrainersRecord: Form(name="record of trainers"),
    RefoundingRecord: Form(name="record of a refounding"),
}


def encode_record(value: Any) -> bytes:
    """One line of JSON: equal values have equal bytes."""
    return encode_plain(with_version(FORMS[type(value)], to_plain(value)))


def decode_record(cls: type[_T], data: bytes) -> _T:
    """The inverse of `encode_record`, of older versions too.  Raises DocumentError."""
    return from_plain(cls, without_version(FORMS[cls], parse_json(data)))


def try_record(cls: type[_T], snapshot: Snapshot, key: Key) -> _T | None:
    """What the store says under the key.  Raises PermanentError for what no version of this EDL has written."""
    value = snapshot.try_value(key)
    try:
        return decode_record(cls, value) if value is not None else None
    except DocumentError as error:
        raise PermanentError(f"{key}: {error}. Was it written by another version of EDL?") from error


def restating(snapshot: Snapshot, keys: JobKeys, term: Term) -> Transaction | None:
    """Writes every record anew that an older version wrote; None: there is none.  Raises PermanentError."""
    found = [(key, cls, snapshot.try_value(key)) for key, cls in _classes(keys).items()]
    stale = [
        (key, value, encode_record(record))
        for key, cls, value in found
        if value is not None and (record := try_record(cls, snapshot, key)) is not None
    ]
    stale = [(key, old, new) for key, old, new in stale if old != new]
    if not stale:
        return None
    return Transaction(
        term=term,
        writes=tuple(Put(key, new) for key, _, new in stale),
        require=tuple(ValueIs(key, old) for key, old, _ in stale),
    )


def _classes(keys: JobKeys) -> dict[Key, type[Any]]:
    return {
        keys.lineage: LineageRecord,
        keys.dataset: DatasetRecord,
        keys.route: Route,
        keys.intents: IntentsRecord,
        keys.backups: Backups,
        keys.trainers: TrainersRecord,
        keys.refounding: RefoundingRecord,
    }
