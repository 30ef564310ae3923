"""Lifecycle of a move: intent, then flip or undo, and the messages sent (rules 37 to 60).

    waiting -> INTENT -> FREEZE ... INSTALLED -> FLIP -> ACTIVATE, FORGET        moved
                            `-- lost, late, given up -> UNDO -> ACTIVATE, FORGET    stays, at the next version

The table in the store is authoritative (`state.bucket_table`); reports of servers are soft state and are requested
again (`server_commands`).  No move waits for a cut and no cut for a move, except by admission (rule 59).

Not here: where buckets belong (`rebalancing`), which moves begin (`move_admission`), late moves (`move_timeouts`),
the loss of a server (`servers.server_handlers`), new masters (`recovery`).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.messages.from_members import Activated, Installed
from master.job.dispatch import skip_agreement
from master.job.domain.durable_records import BucketTable, ChangeTable, MemberKey
from master.job.domain.effects import Persist
from master.job.domain.frozen_map import FrozenMap
from master.job.moves import move_admission, move_timeouts, promotion, rebalancing, server_commands
from master.job.state import bucket_table
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server
from master.job.state.protocol_state import RecoveryStage

# ---- progress -------------------------------------------------------------------------------------------------------


def advance(turn: Turn) -> None:
    """Ends the moves that can end and begins those that may, in one transaction."""
    state = turn.state
    if state.stage is not RecoveryStage.SERVING or state.moves.writing or state.route is None:
        return
    before = state.table
    if before is not None and (state.moves.intents or state.moves.waiting or before.backups):
        ended = promotion.promote_lost(state, _end_moves(state, before))
        after = move_admission.admit_moves(turn, ended)
        if after != before:
            _write(turn, before, after)


def is_quiet(state: MasterState) -> bool:
    """True if no bucket has an intent or is inactive: then a cut names every bucket (rule 59)."""
    moves = state.moves
    return not (moves.intents or moves.inactive or moves.writing)


def undo_all(turn: Turn) -> None:
    """Undoes the intents of an earlier master, which is allowed at any time (rules 46, 55).

    The copies of servers that have not come back go to those that have the other copy (rule 62).
    """
    after = before = turn.state.table
    assert before is not None
    assert after is not None
    for intent in before.intents:
        after = bucket_table.undone(after, intent)
    _write(turn, before, promotion.promote_lost(turn.state, after))


def _write(turn: Turn, before: BucketTable, after: BucketTable) -> None:
    servers, has_to_leave = turn.state.members.servers.values(), turn.state.has_to_leave
    staying = [server.key.incarnation for server in servers if not has_to_leave(server)]
    write = ChangeTable(old=before, new=bucket_table.next_revision(bucket_table.without_idle_places(after, staying)))
    turn.change(moves=replace(turn.state.moves, writing=write))
    turn.emit(Persist(write=write))


def _end_moves(state: MasterState, now: BucketTable) -> BucketTable:
    """The table with UNDO for moves that were given up and FLIP for those that have arrived (rules 45, 46)."""
    for intent in now.intents:
        if intent.bucket in state.moves.undone:
            now = bucket_table.undone(now, intent)
        elif intent.bucket in state.moves.installed:
            source = state.members.try_server(intent.source)
            now = bucket_table.flipped(now, intent, source_stays=source is not None and not state.has_to_leave(source))
    return now


# ---- table changes --------------------------------------------------------------------------------------------------


def handle_changed(turn: Turn, write: ChangeTable) -> bool:
    """The table is durable, so orders go to the servers concerned (persist before send).

    False: an owner is lost, and with it the model.
    """
    state, old, new = turn.state, write.old, write.new
    if state.moves.writing != write:
        return True
    over = frozenset(intent.bucket for intent in old.intents if intent not in new.intents)
    arrived = state.moves.saved & over
    begun = [intent for intent in new.intents if intent not in old.intents]
    changed = bucket_table.changed(old, new)
    fresh = {intent.bucket: turn.now for intent in new.intents}
    lost = frozenset(one.bucket for one in begun if not state.members.try_server(one.target))
    moves = replace(
        state.moves,
        writing=None,
        intents=new.intents,
        installed=state.moves.installed - over,
        undone=(state.moves.undone - over) | lost,  # it may have gone while the intent was being written
        inactive=state.moves.inactive | changed,
        unready_backups=bucket_table.backed_of(new, state.moves.unready_backups | changed),
        unreachable_backups=state.moves.unreachable_backups - changed,
        late=0 if arrived else state.moves.late,
        timed_out=FrozenMap({bucket: to for bucket, to in state.moves.timed_out.items() if bucket not in arrived}),
        begun_at=FrozenMap(fresh | {bucket: at for bucket, at in state.moves.begun_at.items() if bucket in fresh}),
        resend_at=state.moves.resend_at or turn.after(state.config.answer_timeout_ns),
    )
    promotions = promotion.counted(state, old, new)
    turn.change(route=new.route, backups=new.backups, moves=moves, promotions=promotions)
    skip_agreement.forget_answers(turn, old, new)
    if state.stage is not RecoveryStage.SERVING:
        return True
    server_commands.send_changes(turn, old, new)
    for intent in begun:
        if intent.bucket not in lost:
            server_commands.freeze(turn, intent)
    if (old.route.owner, old.route.version, old.route.servers) != (
        new.route.owner,
        new.route.version,
        new.route.servers,
    ):
        server_commands.send_route(turn)
    rebalancing.plan_for_leaving(turn)
    return all(is_safe(turn.state, owner) for owner in bucket_table.owners(new.route))


def is_safe(state: MasterState, owner: MemberKey) -> bool:
    """True if the buckets of this owner are not lost: it is a member, or others have them all and own them next
    (rules 53, 62).
    """
    now = state.table
    if state.members.try_server(owner) or now is None:
        return now is not None
    rest = set(bucket_table.owned(now.route, owner.incarnation)) - state.moves.saved
    return all(promotion.has_live_backup(state, now, bucket) for bucket in rest)


# ---- reports of servers ---------------------------------------------------------------------------------------------


def handle_installed(turn: Turn, server: Server, message: Installed) -> None:
    """The target has the bucket, so its source has frozen it: FLIP (rules 44, 45)."""
    state = turn.state
    for intent in state.moves.intents:
        if (
            (intent.bucket, intent.target, intent.lineage) == (message.bucket, server.key, message.lineage)
            and message.version == intent.version + 1
            and state.stage is RecoveryStage.SERVING
        ):
            move_timeouts.handle_arrival(turn, intent)
            turn.change(moves=replace(turn.state.moves, installed=state.moves.installed | {message.bucket}))


def handle_activated(turn: Turn, server: Server, message: Activated) -> None:
    """The server serves these buckets where the table says: they may move again and be cut (rules 41, 58), and be
    asked for a skip (rule 60).
    """
    state = turn.state
    if state.route is None or message.lineage != state.number:
        return
    if message.is_backup:
        _handle_ready(turn, server, message)
        return
    mine = bucket_table.owned(state.route, server.key.incarnation) & message.buckets
    served = bucket_table.by_version(state.route, mine).get(message.version)
    if served is None or served.isdisjoint(state.moves.inactive):
        return
    inactive = state.moves.inactive - served
    turn.change(moves=replace(state.moves, inactive=inactive))
    skip_agreement.resend_skip(turn, server)


def _handle_ready(turn: Turn, server: Server, message: Activated) -> None:
    """The backup takes what the owner passes on."""
    now, moves = turn.state.table, turn.state.moves
    assert now is not None
    mine = bucket_table.backed(now, server.key.incarnation) & message.buckets
    served = bucket_table.by_version(now.route, mine).get(message.version)
    if served is not None:
        turn.change(moves=replace(moves, unready_backups=moves.unready_backups - served))
        skip_agreement.resend_skip(turn, server)


def remove_server(turn: Turn, server: Server) -> bool:
    """The server is no member any more.  True if no bucket is lost (rules 49, 53).

    Moves to it are undone; a bucket that it has handed over is flipped all the same.
    """
    state = turn.state
    to_it = frozenset(intent.bucket for intent in state.moves.intents if intent.target == server.key)
    moves = replace(state.moves, undone=state.moves.undone | to_it, installed=state.moves.installed - to_it)
    turn.change(moves=moves)
    now = turn.state.table
    if now is None:
        return False
    if state.stage in (RecoveryStage.RAISING, RecoveryStage.RESTORING) or state.recovery.must_raise:
        return server.key not in bucket_table.copy_holders(now)
    if now.backups and state.stage in (
        RecoveryStage.ADOPTING,
        RecoveryStage.GATHERING,
    ):  # the others may be on their way
        return not promotion.is_lost_with(turn.state, server.key)
    if now.backups:  # it may have been the second copy of what waits for its promotion
        return all(is_safe(turn.state, owner) for owner in bucket_table.owners(now.route))
    if state.stage is RecoveryStage.SERVING:
        return is_safe(turn.state, server.key)
    return server.key not in bucket_table.owners(now.route)
