"""From a new master, or a lost server, to a model that serves (rules 17, 18, 24, 26 to 29).

    ADOPTING -> GATHERING -> READING_MARKS -> SERVING         every server still holds the current lineage
                    ^  `---> RAISING -> RESTORING -> SERVING  some do not: all go back to head under lineage + 1
                    |                     `---> READING_MARKS  where those that are left keep what they have (rule 30)
                    `--- a server is lost, at any time

One path serves the first start (lineage 0, no base), a lost server, a server lost again meanwhile, and the roll-back
that an earlier master left half done: the raise is durable before any RESTORE leaves, and one more raise is always
right.  A job without servers needs no model restored: it serves as soon as it has a lineage.

A new master undoes every move that it finds begun, and has the table's owners serve before it asks for their marks
(rule 55).  A roll-back makes a new table on the servers that are here (rule 56).

Servers keep what they have only where the job says so (`AfterLoss`, ADR 0317) and nothing but a loss is the matter.
Who keeps what is read off the table of the lineage before, and each server looks for itself.  Then buckets have
different marks, as under any master that takes over, and the way on is the same: read them, finish a SKIP that was
half done, grant what not all have.
"""

from __future__ import annotations

from dataclasses import replace

from master.api.identities import Lineage, Route, ServerPlace, Version
from master.api.manifest import Manifest
from master.api.messages import (
    AskMarks,
    Backed,
    Fenced,
    Kept,
    MarksReport,
    Restore,
    Restored,
    RestoreFailed,
    RouteChanged,
)
from master.api.positions import EMPTY, PositionSet
from master.job import moves, orders, resizing, succession
from master.job.backups import place_backups
from master.job.checkpoint import compare, lists_exactly
from master.job.commit_end import give_up, retain
from master.job.dispatch import gain, keep_out, void
from master.job.domain import (
    AdoptableFound,
    AfterLoss,
    Backups,
    LineageRecord,
    MemberKey,
    OwnersAwaited,
    RaiseLineage,
    SwapHead,
)
from master.job.membership import Server, put_trainer
from master.job.placement import NOBODY, place
from master.job.skipping import finish
from master.job.state import JobState, Moves, Phase, Recovery, Stage, Turn
from master.job.table import all_backed, backed, backup_place, by_version, holders, owned, owner_of, owners


def handle_adoptable(turn: Turn, event: AdoptableFound) -> None:
    """At most one manifest, of head and of the current lineage, before the first grant (rules 17, 24)."""
    state, found = turn.state, event.manifest
    if state.stage is not Stage.ADOPTING or state.writing:
        return
    if found is None or not _is_adoptable(turn, found):
        turn.recover(stage=Stage.GATHERING)
        return
    assert state.lineage is not None
    turn.change(commit=replace(state.commit, phase=Phase.SWAPPING, manifest=found))
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
    """Goes on from GATHERING once all that is needed is there."""
    state = turn.state
    if state.stage is not Stage.GATHERING or state.writing or state.moves.writing:
        return
    if not state.config.servers:
        if state.lineage is None or state.recovery.must_raise:
            raise_lineage(turn)
        else:
            _serve(turn)
    elif not state.dataset:
        return
    elif not state.recovery.must_raise and _is_model_here(state):
        if state.moves.intents or not _is_whole(state):
            moves.undo_all(turn)
            return
        _read_marks(turn)
    elif _are_enough_here(state) and all(server.is_connected for server in next_owners(state)):
        if _has_successors(state):
            turn.recover(succeeds=True)
            advance(turn)
        else:
            raise_lineage(turn)


def _read_marks(turn: Turn) -> None:
    turn.recover(
        stage=Stage.READING_MARKS, marks=Recovery().marks, overdue=turn.after(turn.state.config.answer_timeout_ns)
    )
    for server in turn.state.members.servers.values():
        ask_again(turn, server)


def _has_successors(state: JobState) -> bool:
    """Other processes came in place of those that are missing, and others have all that these had (rule 62)."""
    recovery, now = state.recovery, state.table
    if recovery.must_raise or recovery.succeeds or now is None or now.backups is None:
        return False
    return now.route.lineage == state.number and succession.is_model_here(state, now)


def _is_model_here(state: JobState) -> bool:
    """The recorded owners are processes that are here, all of them with the current lineage."""
    if state.route is None or state.route.lineage != state.number:
        return False
    if state.recovery.succeeds and state.table is not None:
        return succession.is_model_here(state, state.table)
    having = [state.members.try_server(holder) for holder in _holders(state)]
    return all(server and server.is_connected and server.lineage == state.number for server in having)


def _holders(state: JobState) -> frozenset[MemberKey]:
    return holders(state.table) if state.table else frozenset()


def _is_whole(state: JobState) -> bool:
    return state.table is None or succession.is_whole(state, state.table)


def _are_enough_here(state: JobState) -> bool:
    """Each owner or the process that came in its place, but for those that had to go; at first as many as are wanted.

    Once a server is lost, who is not wanted any more is not waited for (ADR 0315).  A new master gives it the time that
    it has to come back, like everybody.  After that time those that are here go on, if they are as many as the job
    began with: the cluster may lack room for another, and whoever comes later gets its share by moves.
    """
    if state.recovery.does_without and _can_go_on(state):
        return True
    here, wanted = set(state.members.servers), range(state.scale.wanted)
    if state.route is None:
        return here.issuperset(wanted)
    owning = {state.route.servers[place].ordinal for place in state.route.owner} - state.recovery.departed
    if state.recovery.must_raise or state.reclaim_ends is None:
        owning &= set(wanted)
    return bool(here) and owning <= here


def await_owners(turn: Turn, *, is_new: bool = False) -> None:
    """From now on, once more.  Only in a job that may have more servers than it began with.

    `is_new`: by a master that knows of no loss; whoever is missing may still have the model.
    """
    state, config = turn.state, turn.state.config
    window_ns = config.owners_window_ns if is_new else config.reconnect_window_ns
    is_short = state.backups is not None and not (state.recovery.must_raise or state.recovery.succeeds)
    if is_short:
        window_ns = config.heirs_window_ns
    ends = turn.after(window_ns) if is_short or config.most_servers > config.servers else None
    turn.recover(awaits_until=ends, does_without=False)


def note_arrival(turn: Turn) -> None:
    """A server has come.  The first one to a new master: from then on the others' pauses may bring them too."""
    state = turn.state
    is_first = state.stage in (Stage.ADOPTING, Stage.GATHERING) and len(state.members.servers) == 1
    if is_first and state.backups is not None and not (state.recovery.must_raise or state.recovery.succeeds):
        await_owners(turn, is_new=True)


def handle_owners_awaited(turn: Turn, event: OwnersAwaited) -> None:
    """Whoever is missing need not come any more; while too few are here, they are given the time again.

    First nobody is waited for whose buckets others have too (rule 62).
    """
    state = turn.state
    if state.recovery.awaits_until != event.deadline:
        return
    if state.backups is not None and not (state.recovery.must_raise or state.recovery.succeeds):
        turn.recover(succeeds=bool(state.members.servers))  # else nobody reaches this master yet
        await_owners(turn, is_new=True)
    elif _can_go_on(turn.state):
        turn.recover(awaits_until=None, does_without=True)
    else:
        await_owners(turn)


def _can_go_on(state: JobState) -> bool:
    return len(_staying(state)) >= min(state.config.servers, state.scale.wanted)


def next_owners(state: JobState) -> list[Server]:
    """Those who are to stay; if there are none, whoever is here."""
    return _staying(state) or [state.members.servers[ordinal] for ordinal in sorted(state.members.servers)]


def _staying(state: JobState) -> list[Server]:
    known = (state.members.servers[ordinal] for ordinal in sorted(state.members.servers))
    return [server for server in known if not state.is_going(server)]


# ---- all servers hold the lineage: their marks -----------------------------------------------------------------------


def handle_marks(turn: Turn, server: Server, said: MarksReport) -> None:
    """DONE := head and what all buckets have; a SKIP that was left half done is done again (rules 17, 31)."""
    state = turn.state
    if state.stage is not Stage.READING_MARKS or said.lineage != state.number or state.route is None:
        return
    mine = owned(state.route, server.key.incarnation)
    if not mine:
        return
    if not lists_exactly(said.marks, mine):
        lose_model(turn, f"{server.key.name} does not hold the buckets that it owns")
        return
    reports = state.recovery.marks.put(server.ordinal, said)
    turn.recover(marks=reports)
    if len(reports) < len(owners(state.route)):
        return
    marks = compare(group for report in reports.values() for group in report.marks)
    if not state.dispatch.committed <= marks.everywhere:
        lose_model(turn, f"the model lacks {state.dispatch.committed - marks.everywhere}, which head contains")
        return
    unready = all_backed(state.table) if state.table else EMPTY  # as far as this master has heard
    overdue = turn.after(state.config.answer_timeout_ns) if unready else None
    turn.change(dispatch=gain(state.dispatch, marks.everywhere), moves=Moves(unready=unready, overdue=overdue))
    _serve(turn)
    finish(turn, marks.skipped_anywhere)


# ---- some do not: back to head under the next lineage ----------------------------------------------------------------


def lose_model(turn: Turn, problem: str, *, rolls_back: bool = True) -> None:
    """Buckets are lost, or half of them would skip: abort the commit, void all leases, raise the lineage (rule 26).

    `rolls_back`: what the others have is not to be kept either; False where a server was lost and nothing else.
    """
    state = turn.state
    if state.stage in (Stage.RESTORING, Stage.READING_MARKS):
        turn.recover(kept=None)  # servers were told the table that holds now
    if state.commit.phase not in (Phase.IDLE, Phase.SWAPPING):  # what is in the store's hands will be answered
        give_up(turn, problem)
    going_on = state.stage in (Stage.ADOPTING, Stage.RAISING)
    turn.recover(
        stage=state.stage if going_on else Stage.GATHERING,
        must_raise=True,
        rolls_back=state.recovery.rolls_back or rolls_back,
        restored=frozenset(),
        overdue=None,
    )
    await_owners(turn)
    under_way = Moves(intents=state.moves.intents, writing=state.moves.writing)
    turn.change(dispatch=void(turn.state.dispatch), skip=None, reclaim_ends=None, moves=under_way)


def look_again(turn: Turn) -> None:
    """A server was lost without which the model is whole: others are asked in its place."""
    if turn.state.stage is Stage.READING_MARKS and not _is_whole(turn.state):
        turn.recover(stage=Stage.GATHERING, kept=None, succeeds=True, overdue=None)


def raise_lineage(turn: Turn) -> None:
    """One transaction: lineage := (more than anybody knows, head, quarantine), and who owns what (rules 26, 29)."""
    state = turn.state
    known = [state.number, *(server.lineage for server in state.members.servers.values())]
    if state.head:
        known.append(state.head.lineage)
    number = Lineage(1 + max(known))
    quarantine = state.recovery.quarantine | (state.lineage.quarantine if state.lineage else EMPTY)
    turn.recover(stage=Stage.RAISING, must_raise=False, departed=frozenset(), awaits_until=None, does_without=False)
    route = _new_route(turn, number) if state.config.servers else None
    turn.write(
        RaiseLineage(
            old=state.lineage,
            new=LineageRecord(number=number, base=state.head_id, quarantine=quarantine),
            route=route,
            backups=_new_backups(state, route) if route else None,
        )
    )


def _new_route(turn: Turn, number: Lineage) -> Route:
    state, before = turn.state, turn.state.route
    bucket_count = (state.head.bucket_count if state.head else 0) or state.config.bucket_count
    if before:
        bucket_count = len(before.owner)
    servers = next_owners(state)
    seat = {server.ordinal: number for number, server in enumerate(servers)}
    held = [seat.get(before.servers[owner].ordinal, NOBODY) for owner in before.owner] if before else []
    return Route(
        revision=before.revision + 1 if before else 1,
        lineage=number,
        servers=tuple(moves.place_of(one) for one in servers),
        owner=place(bucket_count, len(servers), held),
        version=(Version(0),) * bucket_count,
    )


def _new_backups(state: JobState, route: Route) -> Backups | None:
    """The second copies, where each bucket is to have one and there are servers for it (rule 61).

    What an owner may keep has none: who reads the base would be behind it (rule 30).  It gets one by a move.
    """
    if state.config.copies == 1:
        return None
    nowhere, unnamed = (NOBODY,) * len(route.owner), (Version(0),) * len(route.owner)
    placed = place_backups(route.owner, len(route.servers), nowhere)
    before = _table_to_keep_by(state)
    may_stay = [before is not None and owner_of(before, b) == owner_of(route, b) for b in range(len(placed))]
    holder = tuple(NOBODY if stays else at for stays, at in zip(may_stay, placed, strict=True))
    return Backups(holder=holder, since=unnamed, holder_since=unnamed)


def handle_raised(turn: Turn, write: RaiseLineage) -> None:
    """Durable: now the trainers of the old lineage are told, and the servers restore (rules 14, 26, 30)."""
    turn.recover(kept=_table_to_keep_by(turn.state))
    turn.change(
        lineage=write.new,
        route=write.route or turn.state.route,
        backups=write.backups,
        moves=Moves(),
        dispatch=keep_out(void(turn.state.dispatch), write.new.quarantine),
        reclaim_ends=None,
        owner=None,
        is_world_free=True,
    )
    turn.recover(quarantine=EMPTY)
    retain(turn)
    fence_all(turn, f"the model is of lineage {write.new.number} now: register again")
    state = turn.state
    if not state.config.servers:
        _serve(turn)
    elif state.recovery.must_raise or not _are_owners_here(state):
        turn.recover(stage=Stage.GATHERING, must_raise=True)
        await_owners(turn)
    else:
        turn.recover(
            stage=Stage.RESTORING,
            rolls_back=False,
            restored=frozenset(),
            overdue=turn.after(state.config.answer_timeout_ns),
            problem="",
        )
        for server in state.members.servers.values():
            ask_again(turn, server)


def _table_to_keep_by(state: JobState) -> Route | None:
    """Of the lineage before, or of one still before that when servers have not been told of anything since."""
    if state.config.after_loss is AfterLoss.ROLL_BACK or state.recovery.rolls_back:
        return None
    return state.recovery.kept or state.route


def _kept(state: JobState, server: Server) -> tuple[Kept, ...]:
    """What this server owned before and owns again; whether it still has it so, it looks for itself."""
    before = state.recovery.kept
    if before is None or state.route is None:
        return ()
    mine = owned(before, server.key.incarnation) & owned(state.route, server.key.incarnation)
    return tuple(
        Kept(lineage=before.lineage, version=version, buckets=buckets)
        for version, buckets in by_version(before, mine).items()
    )


def _are_owners_here(state: JobState) -> bool:
    return state.route is not None and all(state.members.try_server(holder) for holder in _holders(state))


def fence_all(turn: Turn, reason: str) -> None:
    """All trainers register again before anything else of them is heard (rule 14)."""
    for trainer in tuple(turn.state.members.registered()):
        turn.change(members=put_trainer(turn.state.members, replace(trainer, is_registered=False)))
        turn.send(trainer.key, Fenced(reason=reason))


def ask_again(turn: Turn, server: Server) -> None:
    """AskMarks or RESTORE, to a server that has not answered it.  Both may be repeated (rule 27).

    Marks are those of active buckets, so what the table names is activated first, and what it does not is forgotten.
    """
    state = turn.state
    if state.stage is Stage.READING_MARKS and server.ordinal not in state.recovery.marks:
        assert state.route
        mine = owned(state.route, server.key.incarnation)
        orders.tell_lost(turn, server)
        orders.activate(turn, server, (bucket for bucket in mine if state.route.version[bucket]))
        orders.activate(turn, server, _standby(state, server), is_backup=True)
        if mine:
            turn.send(server.key, AskMarks(lineage=state.number))
    if state.stage is Stage.RESTORING and server.ordinal not in state.recovery.restored:
        assert state.route
        assert state.dataset
        assert state.lineage
        mine, standby = owned(state.route, server.key.incarnation), _standby(state, server)
        if state.is_going(server) and not (mine or standby):
            return
        turn.send(
            server.key,
            Restore(
                incarnation=server.key.incarnation,
                lineage=state.number,
                base=state.lineage.base,
                files=state.head.files if state.head else (),
                data=state.head.data if state.head else EMPTY,
                quarantine=state.lineage.quarantine,
                tables=state.dataset.tables,
                bucket_count=len(state.route.owner),
                buckets=mine,
                version=Version(0),
                kept=_kept(state, server),
                backed=_backed(state, mine),
                standby=standby,
            ),
        )


def _standby(state: JobState, server: Server) -> PositionSet:
    return backed(state.table, server.key.incarnation) if state.table else EMPTY


def _backed(state: JobState, mine: PositionSet) -> tuple[Backed, ...]:
    """Of these buckets, where their backups are."""
    found: dict[ServerPlace, list[int]] = {}
    for bucket in mine:
        if state.table and (place_ := backup_place(state.table, bucket)):
            found.setdefault(place_, []).append(bucket)
    return tuple(Backed(buckets=PositionSet.of(*buckets), backup=place_) for place_, buckets in found.items())


def handle_restored(turn: Turn, server: Server, said: Restored) -> None:
    """All have: the job serves (rule 27), at once where all have the base."""
    state = turn.state
    if state.stage is Stage.RESTORING and said.lineage == state.number:
        turn.recover(restored=state.recovery.restored | {server.ordinal})
        having = [turn.state.members.try_server(holder) for holder in _holders(state)]
        if not all(server and server.ordinal in turn.state.recovery.restored for server in having):
            return
        if state.recovery.kept is None:
            _serve(turn)
        else:
            _read_marks(turn)
    elif state.stage is Stage.SERVING:
        resizing.plan(turn)


def handle_restore_failed(turn: Turn, server: Server, said: RestoreFailed) -> None:
    """Asked again when it is overdue; people are told meanwhile."""
    if turn.state.stage is Stage.RESTORING and said.lineage == turn.state.number:
        turn.recover(problem=f"{server.key.name} cannot restore: {said.message}")


def _serve(turn: Turn) -> None:
    state = turn.state
    turn.recover(
        stage=Stage.SERVING,
        kept=None,
        overdue=None,
        awaits_until=None,
        does_without=False,
        succeeds=False,
        problem="",
    )
    turn.change(commit=replace(state.commit, due=turn.after(state.config.checkpoint_every_ns)))
    if state.route and state.config.servers:
        for trainer in state.members.registered():
            turn.send(trainer.key, RouteChanged(route=state.route, bucket_count=len(state.route.owner)))
        for server in state.members.servers.values():
            resizing.enter(turn, server)
        resizing.plan_anew(turn)  # an earlier master may have got half way
