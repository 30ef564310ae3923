"""A master in the checker's world: the real core, what it has asked of etcd and storage, and etcd itself.

etcd is the few durable values and the leader's term.  A transaction is the one that the product sends, requirements and
all (`master.durable.transactions`), tried as a whole and fenced by its term.  An unknown outcome needs no step of its
own: the shell settles it before it tells the core, so for the core it is a transaction that takes long, and "carried
out but never heard of" is one followed by a take-over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import assert_never

from master import job
from master.api.checkpoints.manifest import Manifest
from master.api.document import encode_document
from master.api.identities import Term
from master.durable.transactions import number_key, parse_durable, transaction_of
from master.job.domain.durable_records import (
    DatasetRecord,
    Durable,
    DurableWrite,
    Instant,
    IntentsRecord,
    MemberKey,
    SwapHead,
    TrainersRecord,
)
from master.job.domain.effects import (
    AnswerServers,
    CloseStream,
    FindAdoptable,
    Persist,
    Retain,
    Send,
    StepDown,
    WriteManifest,
)
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import CoreEvent
from master.job.state.job_state import JobStep, MasterState
from master.store.job_keys import JobKeys, Key
from master.store.store_port import Delete, Entry, Put, Revision, StoreSnapshot, is_met
from tests.protocol.interning import hashed_once

NOW = Instant(1_000_000_000)
KEYS = JobKeys("checked")


@dataclass(frozen=True, kw_only=True)
class MasterProcess:
    """One term.  What it has asked for and has not been told the outcome of, in order."""

    state: MasterState
    writes: tuple[DurableWrite, ...] = ()
    manifests: tuple[Manifest, ...] = ()
    searches: tuple[FindAdoptable, ...] = ()
    has_stepped_down: bool = False
    __hash__ = hashed_once


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterStep:
    process: MasterProcess
    said: tuple[Send | CloseStream, ...] = ()
    retained: tuple[Retain, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Etcd:
    """`term`: who leads."""

    term: Term
    durable: Durable


def started(config: JobConfig, etcd: Etcd) -> MasterStep:
    """The process that has just won `etcd.term` and read what is durable."""
    step = job.initial(config, etcd.durable, etcd.term, NOW)
    return _carried_out(MasterProcess(state=step.state), step)


def handled(process: MasterProcess, event: CoreEvent) -> MasterStep:
    return _carried_out(process, job.handle(process.state, event, NOW))


def _carried_out(process: MasterProcess, step: JobStep) -> MasterStep:
    after = replace(process, state=step.state)
    said: list[Send | CloseStream] = []
    retained: list[Retain] = []
    for effect in step.effects:
        match effect:
            case Persist(write=write):
                after = replace(after, writes=(*after.writes, write))
            case WriteManifest(manifest=manifest):
                after = replace(after, manifests=(*after.manifests, manifest))
            case FindAdoptable():
                after = replace(after, searches=(*after.searches, effect))
            case Send() | CloseStream():
                said.append(effect)
            case Retain():
                retained.append(effect)
            case AnswerServers():
                pass  # heard at once or late, it changes nothing: the number is durable
            case StepDown():
                after = replace(after, has_stepped_down=True)
            case _:
                assert_never(effect)
    return MasterStep(process=after, said=tuple(said), retained=tuple(retained))


def try_write(etcd: Etcd, term: Term, write: DurableWrite, storage: tuple[Manifest, ...]) -> Etcd | None:
    """The product's own transaction on the product's own values, all of it; None when a requirement fails."""
    if etcd.term != term:
        return None
    head = next(m for m in storage if m.id == write.manifest) if isinstance(write, SwapHead) else etcd.durable.head
    after = _try_commit(etcd.durable, write, head)
    return None if after is None else replace(etcd, durable=after)


@lru_cache(maxsize=1 << 16)  # the same few values meet the same few writes in most states
def _try_commit(durable: Durable, write: DurableWrite, head: Manifest | None) -> Durable | None:
    entries = _entries(durable)
    key = number_key(write, KEYS)
    transaction = transaction_of(write, KEYS, Term(1), number=entries.get(key) if key else None)
    if not all(is_met(comparison, entries) for comparison in transaction.require):
        return None
    for change in transaction.writes:
        match change:
            case Put(key, value):
                entries[key] = Entry(value=value, mod_revision=Revision(1))
            case Delete(key):
                entries.pop(key, None)
            case _:
                assert_never(change)
    return parse_durable(StoreSnapshot(revision=Revision(1), entries=entries), KEYS, head, durable.origin)


def _entries(durable: Durable) -> dict[Key, Entry]:
    """What `parse_durable` reads as these values."""
    values = {
        KEYS.lineage: encode_document(durable.lineage) if durable.lineage else None,
        KEYS.dataset: encode_document(durable.dataset) if durable.dataset else None,
        KEYS.high_water: str(durable.high_water).encode() if durable.high_water else None,
        KEYS.trainers: _encode_trainers(durable.trainers),
        KEYS.head: durable.head.id.encode() if durable.head else None,
        KEYS.route: encode_document(durable.route) if durable.route else None,
        KEYS.intents: encode_document(IntentsRecord(intents=durable.intents)) if durable.intents else None,
        KEYS.backups: encode_document(durable.backups) if durable.backups else None,
        KEYS.generation: encode_document(durable.generation) if durable.generation else None,
        KEYS.servers: str(durable.servers).encode() if durable.servers is not None else None,
        KEYS.final_save: durable.final_save.encode() if durable.final_save is not None else None,
    }
    return {key: Entry(value=value, mod_revision=Revision(1)) for key, value in values.items() if value is not None}


def _encode_trainers(trainers: tuple[MemberKey, ...] | None) -> bytes | None:
    return None if trainers is None else encode_document(TrainersRecord(trainers=trainers))


def adoptable(storage: tuple[Manifest, ...], search: FindAdoptable) -> tuple[Manifest, ...]:
    """What the folder answers with one of: as in `master.durable.checkpoint_folder`, all files there verify."""
    return tuple(m for m in storage if (m.parent, m.lineage) == (search.parent, search.lineage))


def founded(dataset: DatasetRecord) -> Etcd:
    """Of a job whose data set is recorded and which has not begun."""
    return Etcd(term=Term(1), durable=Durable(dataset=dataset))
