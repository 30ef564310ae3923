"""Declaration of a group's job: data set with the global batch, and the digest of what is equal on all ranks.

The first one is recorded, and later ones are compared with it.  A refusal names the field and what to do.
"""

from __future__ import annotations

from typing import Final

from master.api.messages.from_members import Declare
from master.api.messages.to_members import Declared, Refused
from master.api.positions import MAX_POSITION
from master.group.group_state import GroupState, GroupTurn, Replica
from master.job.domain.durable_records import DatasetRecord, RecordDataset
from master.job.domain.effects import Persist

_HINT: Final = "Declare the same, or start another job (another name and checkpoint folder)"


def handle_declare(turn: GroupTurn, replica: Replica, message: Declare) -> None:
    """Answered Declared once it is durable, or Refused at once (persist before reply)."""
    state = turn.state
    if refused := _problem(state, message):
        if not (state.dataset or state.pending_declaration):
            turn.put(replica, refusal=f"{refused.field}: {refused.message}")
        turn.send(replica.key, refused)
        return
    turn.put(replica, has_declared=True, moved_at=turn.now)
    if not state.layout:
        turn.change(layout=message.layout)
    if state.dataset:
        turn.send(replica.key, Declared(dataset=state.dataset.dataset, tables=()))
    elif not state.pending_declaration:
        record = DatasetRecord(dataset=message.dataset, layout=message.layout)
        turn.change(pending_declaration=record)
        turn.emit(Persist(write=RecordDataset(record=record)))


def handle_recorded(turn: GroupTurn, write: RecordDataset) -> None:
    """The declaration is durable: all that declared it are answered."""
    turn.change(dataset=write.record, pending_declaration=None)
    for replica in turn.state.members.values():
        if replica.has_declared:
            turn.send(replica.key, Declared(dataset=write.record.dataset, tables=()))


def _problem(state: GroupState, message: Declare) -> Refused | None:
    dataset = message.dataset
    for field in ("size", "epochs", "batch_size"):
        if getattr(dataset, field) < 1:
            return Refused(field=f"dataset.{field}", message=f"is {getattr(dataset, field)}; it must be at least 1")
    if dataset.size * dataset.epochs > MAX_POSITION:
        return Refused(field="dataset.size", message="size x epochs is above 2**62; train fewer epochs in one job")
    if message.tables:
        return Refused(field="tables", message="a group has no parameter servers: its trainers hold the model")
    holds = state.dataset or state.pending_declaration
    known = holds.dataset if holds else state.head.dataset if state.head else None
    for field in ("name", "size", "epochs", "seed", "batch_size") if known else ():
        before, now = getattr(known, field), getattr(dataset, field)
        if before != now:
            return Refused(field=f"dataset.{field}", message=f"is {now!r}, this job's is {before!r}. {_HINT}")
    if state.layout and message.layout != state.layout:
        return Refused(field="layout", message=f"{_difference(message.layout, state.layout)}. {_HINT}")
    return None


def _difference(declared: str, known: str) -> str:
    """Which parts of the replica are not those that the job began with; a layout is `NAME=DIGEST ...`, or a digest."""
    mine, theirs = (dict(part.partition("=")[::2] for part in layout.split()) for layout in (declared, known))
    names = [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]
    what = "shapes, dtypes, hyperparameters, frozen layers or device"
    return f"{', '.join(names):.200}: not as this job's first trainer made it ({what})"
