"""Invariants of a master's state after every step; a breach is a bug and ends the process before it does harm."""

from __future__ import annotations

from master.api.positions import EMPTY
from master.errors import InvariantViolationError
from master.job.domain.durable_records import RaiseLineage, RecordQuarantine, SwapHead
from master.job.moves.move_lifecycle import is_safe
from master.job.state import dispatch_state
from master.job.state.bucket_table import owned, owner_of, owners
from master.job.state.job_state import MasterState
from master.job.state.protocol_state import CommitPhase, RecoveryStage


def check_invariants(state: MasterState) -> None:
    """Raises InvariantViolationError, naming the promise or rule that is broken."""
    dispatch_state.check_invariants(state.dispatch)
    _check_leases(state)
    _check_mark(state)
    _check_model(state)
    _check_moves(state)
    _check_backups(state)
    _check_writing(state)


def _check_leases(state: MasterState) -> None:
    incarnations = {trainer.key.incarnation for trainer in state.members.trainers.values()}
    for key, holder in state.dispatch.holders.items():
        _expect(key in incarnations, f"M2: {key} holds leases and is not a member")
        for lease in holder.leases:
            token = lease.token
            fits = (token.term, token.lineage, token.incarnation) == (state.term, state.number, key)
            _expect(fits, f"rule 3: {lease} is live in term {state.term}, lineage {state.number}")


def _check_mark(state: MasterState) -> None:
    frontier, mark = state.dispatch.frontier, state.high_water
    covers = frontier <= mark.below or mark.is_writing or state.stage is not RecoveryStage.SERVING
    _expect(covers, f"rule 18: leases up to {frontier}, and the high-water mark stays at {mark.below}")


def _check_model(state: MasterState) -> None:
    head_data = state.head.data if state.head else EMPTY
    if state.dataset:
        _expect(
            state.dispatch.committed == head_data, f"M4: {state.dispatch.committed} are COMMITTED, head has {head_data}"
        )
    if state.stage is RecoveryStage.SERVING:
        _expect(state.lineage is not None, "rule 2: serving without a lineage")
        if state.config.servers:
            _expect(
                state.route is not None and state.route.lineage == state.number, "rule 26: the route is not current"
            )
            _check_owners(state)
    else:
        _expect(
            state.commit.phase in (CommitPhase.IDLE, CommitPhase.SWAPPING),
            f"rule 26: {state.commit.phase} while {state.stage}",
        )
    _expect(
        state.commit.phase is CommitPhase.WRITING or not state.dispatch.wanted_by_cut, "rule 20: wanted without a cut"
    )
    _expect(
        bool(state.skip) == bool(state.dispatch.skipping), "rule 31: SKIPPING without a skip, or the other way round"
    )


def _check_owners(state: MasterState) -> None:
    assert state.route is not None
    for owner in owners(state.route):
        mine = owned(state.route, owner.incarnation)
        _expect(is_safe(state, owner), f"rule 26: serving without {owner.name}, which owns {mine}")


def _check_moves(state: MasterState) -> None:
    moves = state.moves
    buckets = [intent.bucket for intent in moves.intents]
    _expect(len(set(buckets)) == len(buckets), f"rule 40: two intents of one bucket: {moves.intents}")
    _expect(moves.installed | moves.undone <= set(buckets), "rule 45: a bucket without an intent is to be flipped")
    for intent in moves.intents:
        assert state.route is not None
        fits = (intent.lineage, intent.version) == (state.route.lineage, state.route.version[intent.bucket])
        _expect(
            fits and owner_of(state.route, intent.bucket) == intent.source, f"rule 41: {intent} is not of the table"
        )
    if moves.writing:
        _expect(moves.writing.old == state.table, "rule 45: the table changed under a write")
    _expect(state.stage is not RecoveryStage.RAISING or not moves.writing, "rule 56: a table is written under a raise")


def _check_backups(state: MasterState) -> None:
    now = state.table
    if now is None or now.backups is None:
        return
    pairs = zip(now.route.owner, now.backups.backup, strict=True)
    _expect(all(owner != holder for owner, holder in pairs), "rule 61: a bucket has both its copies on one server")
    named = {intent.bucket for intent in now.intents}
    _expect(set(now.backups.wanted) <= named, "rule 62: a backup is wanted without an intent")


def _check_writing(state: MasterState) -> None:
    write = state.writing
    _expect(
        (state.commit.phase is CommitPhase.SWAPPING) == isinstance(write, SwapHead),
        "rule 23: a swap of head without a commit",
    )
    _expect(
        (state.stage is RecoveryStage.RAISING) == isinstance(write, RaiseLineage),
        "rule 26: a lineage is raised outside stage RAISING",
    )
    if isinstance(write, SwapHead):
        _expect(
            write.parent == state.head_id and write.lineage == state.lineage, "rule 23: the swap can only be refused"
        )
    if isinstance(write, RaiseLineage | RecordQuarantine):
        _expect(write.old == state.lineage, "rule 26: the lineage record changed under a write")


def _expect(holds: bool, claim: str) -> None:
    if not holds:
        raise InvariantViolationError(claim)
