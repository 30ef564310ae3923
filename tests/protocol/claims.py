"""What must hold: I1 to I9, each a function that answers with what is wrong, or None (docs/invariants.md)."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from master.api.checkpoints.manifest import Manifest
from master.api.identities import BucketId, Incarnation, Version
from master.api.positions import PositionSet, union
from master.job.domain.durable_records import BucketTable
from master.job.domain.effects import Retain
from master.job.state import bucket_table as tables
from tests.protocol import ledger
from tests.protocol.masters import Etcd
from tests.protocol.servers import ServerProcess


def wrong_with_new_head(etcd: Etcd, new: Manifest, positions: int, *, is_plain: bool) -> str | None:
    """I1, I2 and I3 of a manifest that becomes head."""
    wanted = ledger.exactly(new.data - new.quarantine, positions)
    contents = ledger.of_files(new.files)
    if is_plain:  # rule 36: no model that the system knows
        contents = {}
    elif missing := set(range(new.bucket_count)) - set(contents):
        return f"I1: buckets {sorted(missing)} are in no file of the new head"
    named = [b for file in new.files for marks in file.marks for b in marks.buckets]
    if not is_plain and sorted(named) != list(range(new.bucket_count)):
        return f"I8: the files of the new head name the buckets {sorted(named)}"
    for bucket, counts in contents.items():
        if counts != wanted:
            return f"I1: head says {list(new.data)} less {list(new.quarantine)}; bucket {bucket} applied {counts} times"
    if len({file.lineage for file in new.files} | {new.lineage}) > 1:
        return f"I3: files of lineages {[int(f.lineage) for f in new.files]} in a checkpoint of lineage {new.lineage}"
    old = etcd.durable.head
    if old is not None and old.data - new.data:
        return f"I2: head goes back from {list(old.data)} to {list(new.data)}"
    return None


def wrong_with_server(etcd: Etcd, process: ServerProcess, *, is_strict: bool) -> str | None:
    """I2: live buckets of the current lineage contain head; and marks are what the ledger says, or M1 has no ground."""
    head, lineage = etcd.durable.head, etcd.durable.lineage
    state = process.state
    for group in state.groups if is_strict else ():
        for bucket, counts in process.live:
            if bucket in group.buckets and counts != ledger.exactly(group.applied, len(counts)):
                return f"I1: bucket {bucket} is marked {list(group.applied)} and has applied {counts} times"
    if head is None or lineage is None or state.lineage != lineage.number:
        return None
    for group in state.groups:
        if group.is_frozen or etcd.durable.backups:  # old, but never discarded: its owner is looked at (I6)
            continue
        if lost := head.data - group.applied - group.skipped:
            return f"I2: head has {list(lost)}, live buckets {list(group.buckets)} of the same lineage have not"
    return None


def wrong_with_owners(
    etcd: Etcd, answered: tuple[PositionSet, ...], processes: tuple[ServerProcess, ...]
) -> str | None:
    """I5, I6, I9: every copy that counts, while its server lives, has all that was answered or can be pulled.

    The copy that counts is the owner's, and its backup's, which may become the owner without a new lineage (rule 62).
    At one lineage at most one server accepts its pushes (I7), and what is quarantined is skipped by it (I9).
    """
    table, here = _table(etcd), {process.state.incarnation: process for process in processes}
    for b, told in enumerate(answered):
        accepting = [p.state.lineage for p in processes if _accepts(p, b, here)]
        if len(set(accepting)) < len(accepting):
            return f"I7: two servers accept pushes for bucket {b} at one lineage"
        for who, incarnation, since in _copies(table, b) if table else ():
            holder = here.get(incarnation)
            if table is None or holder is None or holder.state.lineage != table.route.lineage:
                continue  # lost, or not restored yet
            counts = _copy(holder, b, table.route.version[b], since)
            if counts is None:
                return f"I5: the {who} of bucket {b} lives and has no copy of it at version {table.route.version[b]}"
            if wrong := _wrong_with_copy(etcd, holder, b, counts, told, processes):
                return wrong.format(who)
    return None


def _wrong_with_copy(
    etcd: Etcd,
    holder: ServerProcess,
    b: int,
    counts: ledger.Ledger,
    told: PositionSet,
    processes: tuple[ServerProcess, ...],
) -> str | None:
    head, lineage = etcd.durable.head, etcd.durable.lineage
    contained = head.data if head else PositionSet()
    if any(not counts[p] for p in told):
        return f"I5: bucket {b} has answered {list(told)}, its {{}}'s copy has applied {counts} times"
    if any(not counts[p] for p in contained - (head.quarantine if head else PositionSet())):
        return f"I2: head has {list(contained)}, the {{}}'s copy of bucket {b} has applied {counts} times"
    kept_out = (lineage.quarantine if lineage else PositionSet()) - contained
    if any(counts[p] or p not in _skipped(holder, b) for p in kept_out):
        return f"I9: {list(kept_out)} are quarantined, the {{}} of bucket {b} has applied {counts} times"
    for process in processes:
        if process.state.lineage != holder.state.lineage or process.pulled(b) is None:
            continue
        pulled = dict(process.live)[BucketId(b)]
        if any(map(operator.gt, pulled, counts)):
            return f"I6: a pull of bucket {b} can return {pulled}, its {{}}'s copy has {counts}"
    return None


def _table(etcd: Etcd) -> BucketTable | None:
    route = etcd.durable.route
    return BucketTable(route=route, intents=etcd.durable.intents, backups=etcd.durable.backups) if route else None


def _copies(table: BucketTable, b: int) -> Iterator[tuple[str, Incarnation, Version]]:
    """Who has one that counts, and since when the table has said so."""
    yield "owner", table.route.servers[table.route.owner[b]].incarnation, tables.owner_since(table, b)
    backup = tables.backup_of(table, b)
    if backup and table.backups:
        yield "backup", backup.incarnation, table.backups.backup_since[b]


def _accepts(process: ServerProcess, b: int, here: dict[Incarnation, ServerProcess]) -> bool:
    """It can apply a push: it has no backup, or that is one at the same version (rule 61)."""
    group = next((g for g in process.state.groups if b in g.buckets and not (g.is_frozen or g.is_backup)), None)
    if group is None or group.backup is None:
        return group is not None
    backup = here.get(group.backup.incarnation)
    return backup is not None and any(
        b in g.buckets and g.is_backup and g.version == group.version for g in backup.state.groups
    )


def _skipped(holder: ServerProcess, b: int) -> PositionSet:
    staged = holder.state.moves.try_staged(b)
    return union(
        [*(group.skipped for group in holder.state.groups if b in group.buckets), *([staged.skipped] if staged else [])]
    )


def _copy(holder: ServerProcess, b: int, version: Version, since: Version) -> ledger.Ledger | None:
    """What it serves at this version or will serve once ACTIVATE comes; None: it has nothing to serve."""
    live = next((group for group in holder.state.groups if b in group.buckets), None)
    staged = holder.state.moves.try_staged(b)
    if live is not None and live.version == version:
        return dict(holder.live)[BucketId(b)]
    if staged is not None and since <= staged.version <= version and staged.is_final:
        return next(content for bucket, content, _ in holder.staged if bucket == b)
    if live is not None and since <= live.version < version:
        return dict(holder.live)[BucketId(b)]
    return None


def wrong_with_end(etcd: Etcd) -> str | None:
    """I4: a trainer was told END."""
    head = etcd.durable.head
    if head is None or not head.is_complete:
        return f"I4: END was answered while head has {list(head.data) if head else []}"
    return None


def wrong_with_retention(etcd: Etcd, retain: Retain) -> str | None:
    """Rule 25: head and the lineage's base stay."""
    head, lineage = etcd.durable.head, etcd.durable.lineage
    needed = {head.id if head else None, lineage.base if lineage else None} - {None}
    return f"rule 25: {needed - retain.manifests} would be deleted" if needed - retain.manifests else None
