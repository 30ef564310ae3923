"""What must hold: I1 to I9, each a function that answers with what is wrong, or None (docs/invariants.md)."""

from __future__ import annotations

import operator

from master.api.identities import BucketId, Version
from master.api.manifest import Manifest
from master.api.positions import PositionSet, union
from master.job.domain import Retain
from tests.protocol import ledger
from tests.protocol.masters import Etcd
from tests.protocol.servers import ServerProcess
from tests.protocol.trainers import TrainerProcess
from trainer_sdk.protocol import Phase


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
        if group.is_frozen:  # old, but never discarded: its owner is looked at (I6)
            continue
        if lost := head.data - group.applied - group.skipped:
            return f"I2: head has {list(lost)}, live buckets {list(group.buckets)} of the same lineage have not"
    return None


def wrong_with_owners(
    etcd: Etcd, answered: tuple[PositionSet, ...], processes: tuple[ServerProcess, ...]
) -> str | None:
    """I5, I6, I9: of each bucket the owner by the table, while it lives, has all that was answered or can be pulled.

    And at one lineage at most one server accepts its pushes (I7), and what is quarantined is skipped by it (I9).
    """
    route, here = etcd.durable.route, {process.state.incarnation: process for process in processes}
    for b, told in enumerate(answered):
        active = [p.state.lineage for p in processes if b in p.state.active]
        if len(set(active)) < len(active):
            return f"I7: two servers accept pushes for bucket {b} at one lineage"
        owner = here.get(route.servers[route.owner[b]].incarnation) if route else None
        if route is None or owner is None or owner.state.lineage != route.lineage:
            continue  # lost, or not restored yet
        counts = _copy_of_owner(owner, b, route.version[b])
        if counts is None:
            return f"I5: the owner of bucket {b} lives and has no copy of it at version {route.version[b]}"
        if any(not counts[p] for p in told):
            return f"I5: bucket {b} has answered {list(told)}, its owner's copy has applied {counts} times"
        kept_out = etcd.durable.lineage.quarantine if etcd.durable.lineage else PositionSet()
        kept_out -= etcd.durable.head.data if etcd.durable.head else PositionSet()
        if any(counts[p] or p not in _skipped_by_owner(owner, b) for p in kept_out):
            return f"I9: {list(kept_out)} are quarantined, the owner of bucket {b} has applied {counts} times"
        for process in processes:
            pulled = dict(process.live).get(BucketId(b))
            if pulled and process.state.lineage == route.lineage and any(map(operator.gt, pulled, counts)):
                return f"I6: a pull of bucket {b} can return {pulled}, its owner's copy has {counts}"
    return None


def _skipped_by_owner(owner: ServerProcess, b: int) -> PositionSet:
    staged = owner.state.moving.try_staged(b)
    return union(
        [*(group.skipped for group in owner.state.groups if b in group.buckets), *([staged.skipped] if staged else [])]
    )


def _copy_of_owner(owner: ServerProcess, b: int, version: Version) -> ledger.Ledger | None:
    """What it serves at this version or will serve once ACTIVATE comes; None: it has nothing to serve."""
    live = next((group for group in owner.state.groups if b in group.buckets), None)
    staged = owner.state.moving.try_staged(b)
    if live is not None and live.version == version:
        return dict(owner.live)[BucketId(b)]
    if staged is not None and staged.version == version and staged.is_final:
        return next(content for bucket, content, _ in owner.staged if bucket == b)
    if live is not None and live.version == version - 1:
        return dict(owner.live)[BucketId(b)]
    return None


def wrong_with_trainer(etcd: Etcd, process: TrainerProcess | None, *, is_strict: bool) -> str | None:
    """I2 where this trainer holds the model: that of the current world contains head."""
    head, lineage = etcd.durable.head, etcd.durable.lineage
    if process is None or not process.model or process.state.phase is Phase.LEFT:
        return None
    counts = process.model[0][1]
    if is_strict and counts != ledger.exactly(process.state.applied, len(counts)):
        return f"I1: the model is marked {list(process.state.applied)} and has applied {counts} times"
    if head and lineage and process.state.lineage == lineage.number and (lost := head.data - process.state.applied):
        return f"I2: head has {list(lost)}, the model of the same world has not"
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
