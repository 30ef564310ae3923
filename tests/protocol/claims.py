"""What must hold: I1 to I4, each a function that answers with what is wrong, or None (docs/invariants.md)."""

from __future__ import annotations

from master.api.manifest import Manifest
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
        if lost := head.data - group.applied - group.skipped:
            return f"I2: head has {list(lost)}, live buckets {list(group.buckets)} of the same lineage have not"
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
