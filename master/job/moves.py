"""Buckets move between servers while training goes on: intents, flips, undoings, and who is told (rules 37 to 60).

    waiting -> INTENT -> FREEZE ... INSTALLED -> FLIP -> ACTIVATE, FORGET        moved
                            `-- lost, late, given up -> UNDO -> ACTIVATE, FORGET    stays, at the next version

The table in the store is the truth (`table`); what is kept here beside it is what has been heard since, and is asked
again (`orders`).  Nothing in it waits for a cut, and no cut for it, but for pace (rule 59): a due commit goes first,
and no bucket begins to move under an open cut unless its server has to go.

Not here: where buckets should be (`placement`, asked by `resizing`), what takes too long (`lateness`), the loss of a
server (`servers`), new masters (`recovery`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from master.api.identities import BucketId, ServerPlace
from master.api.messages import Activated, Installed
from master.api.positions import PositionSet
from master.job import lateness, orders, resizing, skipping, succession, table
from master.job.domain import ChangeTable, Intent, MemberKey, Persist, Table
from master.job.frozen_map import FrozenMap
from master.job.membership import Server
from master.job.pace import Pace
from master.job.placement import Move
from master.job.state import JobState, Phase, Stage, Turn

LOOK_AHEAD: Final = 64
"""Waiting moves that are looked at with each event; sources take turns in them, so these name all that are free."""

# ---- what can go on -------------------------------------------------------------------------------------------------


def advance(turn: Turn) -> None:
    """Ends the moves that can end and begins those that may, in one transaction."""
    state = turn.state
    if state.stage is not Stage.SERVING or state.moves.writing or state.route is None:
        return
    before = state.table
    if before is not None and (state.moves.intents or state.moves.waiting or before.backups):
        ended = succession.settled(state, _ended(state, before))
        after = _begun(turn, ended)
        if after != before:
            _write(turn, before, after)


def is_quiet(state: JobState) -> bool:
    """No bucket has an intent or is not active: then a cut names every bucket (rule 59)."""
    moves = state.moves
    return not (moves.intents or moves.inactive or moves.writing)


def undo_all(turn: Turn) -> None:
    """The intents of an earlier master: each may be undone by anybody, at any time (rules 46, 55).

    And the copies of servers that have not come back: others have what they had (rule 62).
    """
    after = before = turn.state.table
    assert before is not None
    assert after is not None
    for intent in before.intents:
        after = table.undone(after, intent)
    _write(turn, before, succession.settled(turn.state, after))


def _write(turn: Turn, before: Table, after: Table) -> None:
    servers, is_going = turn.state.members.servers.values(), turn.state.is_going
    staying = [server.key.incarnation for server in servers if not is_going(server)]
    write = ChangeTable(old=before, new=table.next_revision(table.without_idle_places(after, staying)))
    turn.change(moves=replace(turn.state.moves, writing=write))
    turn.emit(Persist(write=write))


def _ended(state: JobState, now: Table) -> Table:
    """UNDO whatever was given up, FLIP what has arrived (rules 45, 46)."""
    for intent in now.intents:
        if intent.bucket in state.moves.undone:
            now = table.undone(now, intent)
        elif intent.bucket in state.moves.installed:
            source = state.members.try_server(intent.source)
            now = table.flipped(now, intent, source_stays=source is not None and not state.is_going(source))
    return now


def _begun(turn: Turn, now: Table) -> Table:
    """INTENT for as many as may be on their way together (rule 41)."""
    state, waiting = turn.state, turn.state.moves.waiting
    is_urgent = any(server.is_leaving for server in state.members.servers.values())
    if not waiting or (is_paced(state) and not is_urgent):
        return now
    beginning = _Beginning(state, now)
    rest = [move for move in waiting[:LOOK_AHEAD] if not beginning.deals_with(move)]
    rest += waiting[LOOK_AHEAD:]
    if len(rest) < len(waiting):
        turn.change(moves=replace(state.moves, waiting=tuple(rest)))
    after = beginning.table()
    if not rest and after == now and not now.intents:
        resizing.plan_for_those_who_go(turn)
    return after


class _Beginning:
    """The moves that begin with one change of the table."""

    def __init__(self, state: JobState, now: Table) -> None:
        assert state.table is not None
        self._state, self._now = state, now
        self._pace = Pace(state, now.intents)
        self._busy = set(table.changed(state.table, now))  # these, and all that was looked at
        self._intents: list[Intent] = []
        self._places: list[ServerPlace] = []
        self._for_backups: list[int] = []

    def deals_with(self, move: Move) -> bool:
        """False: it is looked at again with the next event."""
        state, is_busy = self._state, move.bucket in self._busy
        self._busy.add(move.bucket)
        if is_busy or not self._pace.allows(move):
            return False
        source, target = _ends(state, move)
        is_settled = _is_settled(state, move.bucket)
        if source is None or target is None or (source == target and is_settled):
            return True  # gone, or there already: planned anew when somebody comes or goes
        if not is_settled or not _may_begin(state, source, target):
            return False
        if table.backup_of(self._now, move.bucket) != target.key:
            self._begin(move, source, target)
        elif not move.is_backup:
            self._now = table.promoted(self._now, move.bucket)  # it has all of it: there is nothing to copy
        return True

    def table(self) -> Table:
        return table.with_intents(self._now, self._intents, self._places, PositionSet.of(*self._for_backups))

    def _begin(self, move: Move, source: Server, target: Server) -> None:
        self._intents.append(_intent(self._state, move, source, target))
        self._places.append(place_of(target))
        self._for_backups += [move.bucket] * move.is_backup
        self._pace.begin(move)


def _ends(state: JobState, move: Move) -> tuple[Server | None, Server | None]:
    """The owner by the table, and the target, if both are members."""
    assert state.route is not None
    owner = table.owner_of(state.route, move.bucket)
    return state.members.try_server(owner), state.members.servers.get(move.target)


def _is_settled(state: JobState, bucket: int) -> bool:
    """No intent names it, and its owner has said that it is live at the table's version (rule 41)."""
    is_named = any(intent.bucket == bucket for intent in state.moves.intents)
    return not is_named and bucket not in state.moves.inactive


def _may_begin(state: JobState, source: Server, target: Server) -> bool:
    are_here = source.is_connected and target.is_connected and target.lineage == state.number
    return are_here and not state.is_going(target) and (source.is_leaving or not is_paced(state))


def is_paced(state: JobState) -> bool:
    """A cut is open, or a commit is due and goes first: only what is in a hurry begins to move (rule 59)."""
    return state.commit.phase in (Phase.HOLDING, Phase.WRITING) or state.is_commit_due


def _intent(state: JobState, move: Move, source: Server, target: Server) -> Intent:
    assert state.route is not None
    return Intent(
        bucket=BucketId(move.bucket),
        lineage=state.number,
        version=state.route.version[move.bucket],
        source=source.key,
        target=target.key,
        reason=state.moves.reason,
    )


def place_of(server: Server) -> ServerPlace:
    key = server.key
    return ServerPlace(name=key.name, incarnation=key.incarnation, address=server.address, ordinal=server.ordinal)


# ---- the table has changed ------------------------------------------------------------------------------------------


def handle_changed(turn: Turn, write: ChangeTable) -> bool:
    """Now whoever it concerns is told (persist before send).  False: an owner is lost, and with it the model."""
    state, old, new = turn.state, write.old, write.new
    if state.moves.writing != write:
        return True
    over = frozenset(intent.bucket for intent in old.intents if intent not in new.intents)
    arrived = state.moves.saved & over
    begun = [intent for intent in new.intents if intent not in old.intents]
    changed = table.changed(old, new)
    fresh = {intent.bucket: turn.now for intent in new.intents}
    lost = frozenset(one.bucket for one in begun if not state.members.try_server(one.target))
    moves = replace(
        state.moves,
        writing=None,
        intents=new.intents,
        installed=state.moves.installed - over,
        undone=(state.moves.undone - over) | lost,  # it may have gone while the intent was being written
        inactive=state.moves.inactive | changed,
        unready=table.backed_of(new, state.moves.unready | changed),
        apart=state.moves.apart - changed,
        late=0 if arrived else state.moves.late,
        missed=FrozenMap({bucket: to for bucket, to in state.moves.missed.items() if bucket not in arrived}),
        since=FrozenMap(fresh | {bucket: at for bucket, at in state.moves.since.items() if bucket in fresh}),
        overdue=state.moves.overdue or turn.after(state.config.answer_timeout_ns),
    )
    promotions = succession.counted(state, old, new)
    turn.change(route=new.route, backups=new.backups, moves=moves, promotions=promotions)
    skipping.forget_answers(turn, old, new)
    if state.stage is not Stage.SERVING:
        return True
    orders.tell_changes(turn, old, new)
    for intent in begun:
        if intent.bucket not in lost:
            orders.freeze(turn, intent)
    if (old.route.owner, old.route.version, old.route.servers) != (
        new.route.owner,
        new.route.version,
        new.route.servers,
    ):
        orders.tell_trainers(turn)
    resizing.plan_for_those_who_go(turn)
    return all(is_safe(turn.state, owner) for owner in table.owners(new.route))


def is_safe(state: JobState, owner: MemberKey) -> bool:
    """What it owns is not lost: it is a member, or others have all of it and are its next owners (rules 53, 62)."""
    now = state.table
    if state.members.try_server(owner) or now is None:
        return now is not None
    rest = set(table.owned(now.route, owner.incarnation)) - state.moves.saved
    return all(succession.has_successor(state, now, bucket) for bucket in rest)


# ---- what servers say -----------------------------------------------------------------------------------------------


def handle_installed(turn: Turn, server: Server, said: Installed) -> None:
    """The target has it, so the source has frozen it: FLIP (rules 44, 45)."""
    state = turn.state
    for intent in state.moves.intents:
        if (
            (intent.bucket, intent.target, intent.lineage) == (said.bucket, server.key, said.lineage)
            and said.version == intent.version + 1
            and state.stage is Stage.SERVING
        ):
            lateness.note_arrival(turn, intent)
            turn.change(moves=replace(turn.state.moves, installed=state.moves.installed | {said.bucket}))


def handle_activated(turn: Turn, server: Server, said: Activated) -> None:
    """Live where the table says: it may move again, be cut (rules 41, 58), and be asked what it was not (60)."""
    state = turn.state
    if state.route is None or said.lineage != state.number:
        return
    if said.is_backup:
        _handle_ready(turn, server, said)
        return
    mine = table.owned(state.route, server.key.incarnation) & said.buckets
    served = table.by_version(state.route, mine).get(said.version)
    if served is None or served.isdisjoint(state.moves.inactive):
        return
    inactive = state.moves.inactive - served
    turn.change(moves=replace(state.moves, inactive=inactive))
    skipping.ask_again(turn, server)


def _handle_ready(turn: Turn, server: Server, said: Activated) -> None:
    """It takes what the owner passes on."""
    now, moves = turn.state.table, turn.state.moves
    assert now is not None
    mine = table.backed(now, server.key.incarnation) & said.buckets
    served = table.by_version(now.route, mine).get(said.version)
    if served is not None:
        turn.change(moves=replace(moves, unready=moves.unready - served))
        skipping.ask_again(turn, server)


def let_go(turn: Turn, server: Server) -> bool:
    """This server is no member any more.  True: nothing is lost by that (rules 49, 53).

    What was moving to it is undone; what it has handed over and the target has is flipped all the same.
    """
    state = turn.state
    to_it = frozenset(intent.bucket for intent in state.moves.intents if intent.target == server.key)
    moves = replace(state.moves, undone=state.moves.undone | to_it, installed=state.moves.installed - to_it)
    turn.change(moves=moves)
    now = turn.state.table
    if now is None:
        return False
    if state.stage in (Stage.RAISING, Stage.RESTORING) or state.recovery.must_raise:
        return server.key not in table.holders(now)
    if now.backups and state.stage in (Stage.ADOPTING, Stage.GATHERING):  # the others may be on their way
        return not succession.is_lost_with(turn.state, server.key)
    if now.backups:  # it may have been the second copy of what waits for its promotion
        return all(is_safe(turn.state, owner) for owner in table.owners(now.route))
    if state.stage is Stage.SERVING:
        return is_safe(turn.state, server.key)
    return server.key not in table.owners(now.route)
