"""Declaration of a job: data set and tables.  The first Declare is recorded, and later ones are compared with it.

A refusal names the field and what to do, and nothing starts on it.  Where nothing is declared yet, or all was trained
before this start of the job, every process of the script would be refused alike: the job fails with the first whose
script ends on it (`trainer_loss`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.identities import TableSpec
from master.api.messages.from_members import Declare
from master.api.messages.to_members import Declared, Refused
from master.api.positions import EMPTY, MAX_POSITION
from master.job.domain.durable_records import DatasetRecord, RecordDataset
from master.job.domain.effects import Persist
from master.job.state.dispatch_state import DispatchState, open_dispatch
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Trainer, put_trainer

_WITHOUT: Final = "remove spec.parameterServer from the job"


def handle_declare(turn: Turn, trainer: Trainer, message: Declare) -> None:
    """Answered Declared once it is durable, or Refused at once (persist before reply)."""
    state = turn.state
    record = DatasetRecord(dataset=message.dataset, tables=message.tables)
    if refused := _problem(state, record):
        if has_no_declaration(state):
            refusal = f"{refused.field}: {refused.message}"
            turn.change(members=put_trainer(state.members, replace(trainer, refusal=refusal)))
        turn.send(trainer.key, refused)
        return
    turn.change(members=put_trainer(state.members, replace(trainer, has_declared=True)), is_end_inherited=False)
    if state.dataset:
        turn.send(trainer.key, _declared(state.dataset, record))
    elif not state.pending_declaration:
        turn.change(pending_declaration=record)
        turn.emit(Persist(write=RecordDataset(record=record)))


def has_no_declaration(state: MasterState) -> bool:
    """True while no trainer of this start of the job has declared what is trained."""
    return state.is_end_inherited or not (state.dataset or state.pending_declaration)


def handle_recorded(turn: Turn, write: RecordDataset) -> None:
    """The declaration is durable: dispatch begins, and all trainers that declared the same are answered."""
    turn.change(dataset=write.record, pending_declaration=None)
    turn.change(dispatch=initial_dispatch(turn.state, high_water=turn.state.high_water.below))
    for trainer in turn.state.members.registered():
        if trainer.has_declared:
            turn.send(trainer.key, _declared(write.record, write.record))


def initial_dispatch(state: MasterState, *, high_water: int) -> DispatchState:
    """The dispatch state in which all that head lacks is TODO (rule 17)."""
    assert state.dataset is not None
    dataset, head = state.dataset.dataset, state.head
    blank = DispatchState(everything=dataset.everything, epoch_size=dataset.size, batch_size=dataset.batch_size)
    quarantined = (head.quarantine if head else EMPTY) | (state.lineage.quarantine if state.lineage else EMPTY)
    return open_dispatch(blank, committed=head.data if head else EMPTY, quarantined=quarantined, high_water=high_water)


def _declared(holds: DatasetRecord, declared: DatasetRecord) -> Declared:
    """The answer to a Declare; a batch size may change from run to run, it does not change what is trained."""
    return Declared(dataset=replace(holds.dataset, batch_size=declared.dataset.batch_size), tables=holds.tables)


def _problem(state: MasterState, declared: DatasetRecord) -> Refused | None:
    if problem := _unusable(state, declared):
        return problem
    holds = state.dataset or state.pending_declaration
    if holds is None and state.head:
        holds = replace(declared, dataset=state.head.dataset, tables=state.head.tables)
    return _difference(holds, declared) if holds else None


def _unusable(state: MasterState, declared: DatasetRecord) -> Refused | None:
    dataset, servers = declared.dataset, state.config.servers
    for field in ("size", "epochs", "batch_size"):
        if getattr(dataset, field) < 1:
            return Refused(field=f"dataset.{field}", message=f"is {getattr(dataset, field)}; it must be at least 1")
    if dataset.size * dataset.epochs > MAX_POSITION:
        return Refused(field="dataset.size", message="size x epochs is above 2**62; train fewer epochs in one job")
    if servers and not declared.tables:
        message = (
            f"no tables are declared, but {_asked_for(servers)}: declare them with session.tables(...), or {_WITHOUT}"
        )
        return Refused(field="tables", message=message)
    if declared.tables and not servers:
        return Refused(field="tables", message="the job has no parameter servers: add spec.parameterServer")
    names = [table.name for table in declared.tables]
    if len(set(names)) < len(names):
        return Refused(field="tables", message=f"table names are not unique: {sorted(names)}")
    return None


def _asked_for(servers: int) -> str:
    return f"spec.parameterServer gives the job {servers} parameter server{'s' if servers > 1 else ''}"


def _difference(holds: DatasetRecord, declared: DatasetRecord) -> Refused | None:
    hint = "Declare the same data set and tables, or start another job (another name and checkpoint folder)"
    for field in ("name", "size", "epochs", "seed"):
        before, now = getattr(holds.dataset, field), getattr(declared.dataset, field)
        if before != now:
            kept = "Without a group a job keeps its number of epochs. " if field == "epochs" else ""
            return Refused(field=f"dataset.{field}", message=f"is {now!r}, this job's is {before!r}. {kept}{hint}")
    return _table_difference({t.name: t for t in holds.tables}, {t.name: t for t in declared.tables}, hint)


def _table_difference(holds: dict[str, TableSpec], declared: dict[str, TableSpec], hint: str) -> Refused | None:
    for name in sorted(holds.keys() ^ declared.keys()):
        what = "is missing" if name in holds else "is not one of this job's tables"
        return Refused(field=f"tables.{name}", message=f"{what}. {hint}")
    for name, before in holds.items():
        for field in ("shape", "kind", "dtype", "initialiser", "optimiser"):
            if getattr(before, field) != getattr(declared[name], field):
                now, then = getattr(declared[name], field), getattr(before, field)
                return Refused(field=f"tables.{name}.{field}", message=f"is {now}, this job's is {then}. {hint}")
    return None
