"""Handlers of parameter servers' messages, and the loss of a server (rules 19, 26 to 28).

A server is known by its ordinal; another process at that ordinal means that the one before is lost, however fast it
came.  What a server has not answered is resent when it returns.  A server that owns nothing is no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from master.api.messages.from_members import (
    Activated,
    BackupSilent,
    CutRefused,
    CutTaken,
    Held,
    Installed,
    MarksReport,
    MemberMessage,
    RegisterServer,
    Restored,
    RestoreFailed,
    ServerLeaving,
    ServerReport,
    SkipAnswer,
    Written,
)
from master.api.messages.to_members import Cut, Fenced, Hold, Refused, Released, ServerWelcome
from master.job.commit import commit_protocol
from master.job.dispatch import skip_agreement
from master.job.domain.durable_records import SECOND, Instant, MemberKey
from master.job.domain.job_events import AnswersOverdue
from master.job.moves import move_lifecycle, promotion, rebalancing, server_commands
from master.job.recovery import model_recovery, rollback, server_quorum, server_restore
from master.job.servers import disconnect_grace
from master.job.state import bucket_table
from master.job.state.commit_attempt import give_up
from master.job.state.job_state import Turn
from master.job.state.members import Server, drop_server, put_server, retire, server_of
from master.job.state.protocol_state import CommitPhase, RecoveryStage


def handle_register(turn: Turn, registration: RegisterServer) -> None:
    """Register a server; a new process at a known ordinal, or one without the model, triggers a roll-back."""
    state, server = turn.state, server_of(registration)
    most = state.config.most_servers
    if not 0 <= registration.ordinal < most:
        message = f"is {registration.ordinal}; this job has {most} parameter servers, numbered from 0"
        turn.send(server.key, Refused(field="ordinal", message=message))
        return
    if server.key.incarnation in state.members.retired:
        message = f"a newer process is server {registration.ordinal}; this one may end"
        turn.send(server.key, Refused(field="incarnation", message=message))
        return
    before = state.members.servers.get(registration.ordinal)
    if before and before.key != server.key:
        lose_server(turn, before, f"{before.key.name} was replaced by a new process")
        turn.change(members=retire(turn.state.members, before.key.incarnation))
    elif before and state.stage is RecoveryStage.SERVING and registration.lineage != state.number == before.lineage:
        lose_server(turn, before, f"{before.key.name} has lost its model")
    if before and before.key == server.key:
        is_leaving = server.is_leaving or before.is_leaving
        server = replace(server, is_leaving=is_leaving, is_released=before.is_released)
    turn.change(members=put_server(turn.state.members, server))
    if before is None:
        server_quorum.handle_first_server(turn)
    server_quorum.handle_replacement(turn)
    turn.send(
        server.key,
        ServerWelcome(term=state.term, lineage=turn.state.number, report_every_s=state.config.report_every_ns / SECOND),
    )
    if server.is_released:
        turn.send(server.key, Released())  # the first one may be lost
    if (
        state.stage is RecoveryStage.RESTORING
        and before
        and before.key == server.key
        and registration.lineage == state.number
    ):
        server_restore.handle_restored(turn, server, Restored(lineage=registration.lineage))
    _send_pending_orders(turn, server)
    if turn.state.stage is RecoveryStage.SERVING:
        server_commands.send_forgets(turn, server)
        rebalancing.plan_if_needed(turn)


def _send_pending_orders(turn: Turn, server: Server) -> None:
    """Every order that this server has not answered; one that is new to the lineage is admitted by RESTORE."""
    model_recovery.resend_ask_marks(turn, server)
    server_restore.resend_restore(turn, server)
    rebalancing.admit_server(turn, server)
    server_commands.resend_commands(turn, server)
    skip_agreement.resend_skip(turn, server)
    commit = turn.state.commit
    if server.ordinal not in commit.expected:
        return
    if commit.cut and commit.phase is CommitPhase.HOLDING and server.ordinal not in commit.held:
        turn.send(server.key, Hold(cut=commit.cut))
    if commit.cut and commit.phase is CommitPhase.WRITING and server.ordinal not in commit.files:
        turn.send(server.key, Cut(cut=commit.cut, data=commit.data))


def handle_overdue(turn: Turn, event: AnswersOverdue) -> None:
    """Resends to servers that have not answered: the message may be lost, or the server slow."""
    state = turn.state
    again = turn.after(state.config.answer_timeout_ns)
    if state.recovery.resend_at == event.deadline:
        turn.recover(resend_at=again, is_second_request=False)
        for server in state.members.servers.values():
            model_recovery.resend_ask_marks(turn, server)
            server_restore.resend_restore(turn, server)
    if state.skip and state.skip.resend_at == event.deadline:
        turn.change(skip=replace(state.skip, resend_at=again))
        for server in state.members.servers.values():
            skip_agreement.resend_skip(turn, server)
    if state.moves.resend_at == event.deadline:
        is_over = (
            move_lifecycle.is_quiet(state) and not state.moves.unready_backups and rebalancing.are_all_connected(state)
        )
        turn.change(moves=replace(state.moves, resend_at=None if is_over else again))
        for server in state.members.servers.values():
            rebalancing.admit_server(turn, server)
        server_commands.resend_overdue(turn, Instant(event.deadline - state.config.answer_timeout_ns))


def handle_message(turn: Turn, sender: MemberKey, message: MemberMessage) -> None:
    """Only messages of processes that are members count, except a registration."""
    if isinstance(message, RegisterServer):
        handle_register(turn, message)
        return
    server = turn.state.members.try_server(sender)
    if server is None:
        turn.send(sender, Fenced(reason="not a member: register again"))
        return
    server = disconnect_grace.clear_suspicion(turn, server)
    HANDLERS[type(message)](turn, server, message)


def _handle_restored(turn: Turn, server: Server, message: Restored) -> None:
    newest = replace(server, lineage=max(server.lineage, message.lineage))
    turn.change(members=put_server(turn.state.members, newest))
    server_restore.handle_restored(turn, newest, message)


def _handle_skip_answer(turn: Turn, server: Server, answer: SkipAnswer) -> None:
    if skip_agreement.handle_answer(turn, server, answer):
        rollback.lose_model(turn, "some buckets had applied what others skip")


HANDLERS: Final[Mapping[type[MemberMessage], Callable[[Turn, Server, Any], None]]] = {
    MarksReport: model_recovery.handle_marks,
    Restored: _handle_restored,
    RestoreFailed: server_restore.handle_restore_failed,
    Held: commit_protocol.handle_held,
    CutTaken: lambda *_: None,  # its Written message is the outcome
    CutRefused: commit_protocol.handle_cut_refused,
    Written: commit_protocol.handle_written,
    SkipAnswer: _handle_skip_answer,
    Installed: move_lifecycle.handle_installed,
    Activated: move_lifecycle.handle_activated,
    ServerLeaving: rebalancing.handle_leaving,
    ServerReport: rebalancing.handle_report,
    BackupSilent: disconnect_grace.handle_silent,
}


def lose_server(turn: Turn, server: Server, why: str) -> None:
    """The server's buckets are lost: roll back to head (rule 26), unless backups have or are about to have them."""
    state = turn.state
    had_copies = state.table is not None and server.key in bucket_table.copy_holders(state.table)
    turn.change(members=drop_server(state.members, server), promotions=state.promotions.without(server.ordinal))
    if turn.state.commit.is_waiting_for(server.ordinal):
        give_up(turn, f"{server.key.name}, whose file was still awaited, has left the job")
    if move_lifecycle.remove_server(turn, server):
        model_recovery.restart_marks(turn)
        if had_copies and not state.has_to_leave(server):
            server_quorum.await_replacement(turn)
    else:
        departed = {server.ordinal} if server.is_leaving else set()
        turn.recover(departed=turn.state.recovery.departed | departed)
        rollback.lose_model(turn, why, rolls_back=False)


def open_window(turn: Turn, server: Server) -> None:
    """The server's stream broke: its process may come back with the model while it is waited for
    (`disconnect_grace`).
    """
    if server.is_connected or server.is_suspected:
        disconnected = replace(server, away_since=turn.now, is_suspected=False)
        turn.change(members=put_server(turn.state.members, disconnected))


def handle_window_ended(turn: Turn, server: Server) -> None:
    """The server is lost, unless it is only silent and its copies are needed by now."""
    if not server.is_suspected:
        lose_server(turn, server, f"{server.key.name} is lost: its stream broke and it did not reconnect")
    elif promotion.is_spare(turn.state, server.key):
        lose_server(turn, server, f"{server.key.name} is lost: it answered neither the other servers nor the master")
    else:
        disconnect_grace.clear_suspicion(turn, server)
