"""Stages of recovery: from a new master, or a lost server, to a model that serves (rules 17, 18, 24, 26 to 29).

    ADOPTING -> GATHERING -> READING_MARKS -> SERVING         every server still holds the current lineage
                    ^  `---> RAISING -> RESTORING -> SERVING  some do not: all go back to head under lineage + 1
                    |                     `---> READING_MARKS  where those that are left keep what they have (rule 30)
                    `--- a server is lost, at any time

One path serves the first start (lineage 0, no base), a lost server, a server lost again meanwhile, and a roll-back
that an earlier master left half done.  A job without servers has no model to restore: it serves as soon as it has a
lineage.  A new master undoes every move that it finds begun, and has the table's owners serve before it asks for
their marks (rule 55).

Not here: who is waited for (`server_quorum`), the way back to head (`rollback`, then `server_restore`).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.checkpoints.manifest import Manifest
from master.api.messages.from_members import MarksReport
from master.api.messages.to_members import AskMarks, RouteChanged
from master.api.positions import EMPTY
from master.job.dispatch.skip_agreement import finish_skip
from master.job.domain.durable_records import Instant, SwapHead
from master.job.domain.job_events import AdoptableFound
from master.job.moves import move_lifecycle, promotion, rebalancing, server_commands
from master.job.recovery import rollback, server_quorum
from master.job.state.bucket_marks import compare_marks, lists_exactly
from master.job.state.bucket_table import all_backed, backed, copy_holders, owned, owners
from master.job.state.dispatch_state import mark_done
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server
from master.job.state.protocol_state import BucketMoves, CommitPhase, RecoveryStage, RecoveryState


def handle_adoptable(turn: Turn, event: AdoptableFound) -> None:
    """Adopts at most one manifest, of head and of the current lineage, before the first grant (rules 17, 24)."""
    state, found = turn.state, event.manifest
    if state.stage is not RecoveryStage.ADOPTING or state.writing:
        return
    if found is None or not _is_adoptable(turn, found):
        turn.recover(stage=RecoveryStage.GATHERING)
        return
    assert state.lineage is not None
    turn.change(commit=replace(state.commit, phase=CommitPhase.SWAPPING, manifest=found))
    turn.write(SwapHead(parent=found.parent, lineage=state.lineage, manifest=found.id))


def _is_adoptable(turn: Turn, found: Manifest) -> bool:
    state = turn.state
    head_data = state.head.data if state.head else EMPTY
    return (
        found.parent == state.head_id
        and found.lineage == state.number
        and state.dataset is not None
        and found.dataset.digest == state.dataset.dataset.digest
        and head_data <= found.data
    )


def advance(turn: Turn) -> None:
    """Goes on from GATHERING once everything needed is there."""
    state = turn.state
    if state.stage is not RecoveryStage.GATHERING or state.writing or state.moves.writing:
        return
    if not state.config.servers:
        if state.lineage is None or state.recovery.must_raise:
            rollback.raise_lineage(turn)
        else:
            serve(turn)
    elif not state.dataset:
        return
    elif not state.recovery.must_raise and _is_model_here(state):
        if state.moves.intents or not _is_whole(state):
            move_lifecycle.undo_all(turn)
            return
        read_marks(turn)
    elif server_quorum.has_quorum(state) and all(server.is_connected for server in server_quorum.next_owners(state)):
        if _can_promote_backups(state):
            turn.recover(promotes_backups=True)
            advance(turn)
        else:
            rollback.raise_lineage(turn)


def _can_promote_backups(state: MasterState) -> bool:
    """True if other processes came for missing servers, and backups have all that these had (rule 62)."""
    recovery, now = state.recovery, state.table
    if recovery.must_raise or recovery.promotes_backups or now is None or now.backups is None:
        return False
    return now.route.lineage == state.number and promotion.is_model_here(state, now)


def _is_model_here(state: MasterState) -> bool:
    """True if the recorded owners are connected, all with the current lineage."""
    now = state.table
    if now is None or now.route.lineage != state.number:
        return False
    if state.recovery.promotes_backups:
        return promotion.is_model_here(state, now)
    having = [state.members.try_server(holder) for holder in copy_holders(now)]
    return all(server and server.is_connected and server.lineage == state.number for server in having)


def _is_whole(state: MasterState) -> bool:
    return state.table is None or promotion.is_whole(state, state.table)


def read_marks(turn: Turn) -> None:
    """Asks every owner what its buckets have applied."""
    turn.recover(
        stage=RecoveryStage.READING_MARKS,
        marks=RecoveryState().marks,
        resend_at=turn.after(turn.state.config.answer_timeout_ns),
    )
    for server in turn.state.members.servers.values():
        resend_ask_marks(turn, server)


def handle_marks(turn: Turn, server: Server, answer: MarksReport) -> None:
    """DONE := head and what all buckets have; a half-done SKIP is done again (rules 17, 31).

    An answer from before a promotion lacks the buckets that the server owns only since then (rule 62).  A server that
    lacks them at a second request does not have them.
    """
    state = turn.state
    if state.stage is not RecoveryStage.READING_MARKS or answer.lineage != state.number or state.route is None:
        return
    mine = owned(state.route, server.key.incarnation)
    if not mine:
        return
    if not lists_exactly(answer.marks, mine):
        if not state.recovery.is_second_request:
            rollback.lose_model(turn, f"{server.key.name} does not hold the buckets that it owns")
        return
    reports = state.recovery.marks.put(server.ordinal, answer)
    turn.recover(marks=reports)
    if len(reports) < len(owners(state.route)):
        return
    marks = compare_marks(group for report in reports.values() for group in report.marks)
    if not state.dispatch.committed <= marks.everywhere:
        rollback.lose_model(turn, f"the model lacks positions {state.dispatch.committed - marks.everywhere} of head")
        return
    unready_backups = all_backed(state.table) if state.table else EMPTY  # as far as this master knows
    resend_at = turn.after(state.config.answer_timeout_ns) if unready_backups else None
    turn.change(
        dispatch=mark_done(state.dispatch, marks.everywhere),
        moves=BucketMoves(unready_backups=unready_backups, resend_at=resend_at),
    )
    serve(turn)
    finish_skip(turn, marks.skipped_anywhere)


def resend_ask_marks(turn: Turn, server: Server) -> None:
    """AskMarks to a server that has not answered it.  May be repeated (rule 27).

    Marks are those of active buckets, so the table's buckets are activated first and all others forgotten.
    """
    state = turn.state
    if state.stage is not RecoveryStage.READING_MARKS or server.ordinal in state.recovery.marks:
        return
    assert state.table
    assert state.route
    mine = owned(state.route, server.key.incarnation)
    server_commands.send_forgets(turn, server)
    server_commands.activate(turn, server, (bucket for bucket in mine if state.route.version[bucket]))
    server_commands.activate(turn, server, backed(state.table, server.key.incarnation), is_backup=True)
    if mine:
        turn.send(server.key, AskMarks(lineage=state.number))


def restart_marks(turn: Turn) -> None:
    """A server was lost without which the model is complete: others are queried in its place."""
    if turn.state.stage is RecoveryStage.READING_MARKS and not _is_whole(turn.state):
        turn.recover(
            stage=RecoveryStage.GATHERING, kept=None, promotes_backups=True, is_second_request=True, resend_at=None
        )


def _due(turn: Turn) -> Instant | None:
    """Instant at which the next commit is due; None: as soon as possible.

    A model that was kept goes by the last commit.  A new master does not know when that was and commits first: else
    every master that dies would put the work of one more interval at risk.
    """
    state, every_ns = turn.state, turn.state.config.checkpoint_every_ns
    if not state.dispatch.done:
        return turn.after(every_ns)
    if state.commit.committed_at is None:
        return None
    due = Instant(state.commit.committed_at + every_ns)
    return due if due > turn.now else None


def serve(turn: Turn) -> None:
    """The model is whole: leases are granted, trainers get the route, and new servers get their share."""
    state = turn.state
    turn.recover(
        stage=RecoveryStage.SERVING,
        kept=None,
        resend_at=None,
        owners_wait_ends=None,
        proceeds_without=False,
        promotes_backups=False,
        is_second_request=False,
        unreadable_since=None,
        problem="",
    )
    turn.change(commit=replace(state.commit, due=_due(turn), problem=""))  # earlier problems no longer apply
    if state.route and state.config.servers:
        for trainer in state.members.registered():
            turn.send(trainer.key, RouteChanged(route=state.route, bucket_count=len(state.route.owner)))
        for server in state.members.servers.values():
            rebalancing.admit_server(turn, server)
        rebalancing.plan_moves(turn)  # an earlier master may have got half way
