"""A master in the checker's world: the real core, what it has asked of etcd and storage, and etcd itself.

etcd is the few durable values and the leader's term; a transaction is tried as a whole and fenced by its term.  An
unknown outcome needs no step of its own: the shell settles it before it tells the core, so for the core it is a
transaction that takes long, and "carried out but never heard of" is one followed by a take-over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from master import job
from master.api.identities import Term
from master.api.manifest import Manifest
from master.job.domain import (
    AnswerServers,
    ChangeTable,
    CloseStream,
    DatasetRecord,
    Durable,
    Event,
    FindAdoptable,
    Instant,
    JobConfig,
    LineageRecord,
    Persist,
    RaiseLineage,
    RecordDataset,
    RecordQuarantine,
    RecordServers,
    ReserveHighWater,
    Retain,
    Send,
    StepDown,
    SwapHead,
    Write,
    WriteManifest,
)
from master.job.state import JobState, Step
from tests.protocol.interning import hashed_once

NOW = Instant(1_000_000_000)


@dataclass(frozen=True, kw_only=True)
class MasterProcess:
    """One term.  What it has asked for and has not been told the outcome of, in order."""

    state: JobState
    writes: tuple[Write, ...] = ()
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


def handled(process: MasterProcess, event: Event) -> MasterStep:
    return _carried_out(process, job.handle(process.state, event, NOW))


def _carried_out(process: MasterProcess, step: Step) -> MasterStep:
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


def try_write(  # noqa: C901 - one case per write
    etcd: Etcd, term: Term, write: Write, storage: tuple[Manifest, ...]
) -> Etcd | None:
    """The transaction, all of it or, when a requirement fails, None."""
    if etcd.term != term:
        return None
    durable = etcd.durable
    head = durable.head.id if durable.head else None
    match write:
        case SwapHead(parent=parent, lineage=lineage, manifest=manifest):
            if (head, durable.lineage) != (parent, lineage):
                return None
            found = next(m for m in storage if m.id == manifest)
            return replace(etcd, durable=replace(durable, head=found))
        case RaiseLineage(old=old, new=new, route=route, backups=backups):
            if durable.lineage != old or head != new.base:
                return None
            return replace(etcd, durable=replace(durable, lineage=new, route=route, intents=(), backups=backups))
        case ChangeTable(old=old_table, new=table):
            if (durable.route, durable.intents, durable.backups) != (
                old_table.route,
                old_table.intents,
                old_table.backups,
            ):
                return None
            after = replace(durable, route=table.route, intents=table.intents, backups=table.backups)
            return replace(etcd, durable=after)
        case RecordQuarantine(old=old, new=new):
            return replace(etcd, durable=replace(durable, lineage=new)) if durable.lineage == old else None
        case RecordDataset(record=record):
            return replace(etcd, durable=replace(durable, dataset=record)) if durable.dataset is None else None
        case RecordServers(count=count):
            return replace(etcd, durable=replace(durable, servers=count))
        case ReserveHighWater(below=below):
            return replace(etcd, durable=replace(durable, high_water=below))
        case _:
            assert_never(write)


def adoptable(storage: tuple[Manifest, ...], search: FindAdoptable) -> tuple[Manifest, ...]:
    """What the folder answers with one of: as in `master.folder`, all files there verify."""
    return tuple(m for m in storage if (m.parent, m.lineage) == (search.parent, search.lineage))


def founded(dataset: DatasetRecord) -> Etcd:
    """Of a job whose data set is recorded and which has not begun."""
    return Etcd(term=Term(1), durable=Durable(dataset=dataset))


def lineage_of(etcd: Etcd) -> LineageRecord:
    assert etcd.durable.lineage is not None
    return etcd.durable.lineage
