"""Roll-back: buckets are lost, so all servers go back to head under the next lineage (rules 26, 29, 56).

`lose_model` ends everything of the old lineage; `raise_lineage` writes the new one once enough servers are here.  The
raise is durable before any member hears of it, and one more raise is always right.  Servers keep what they have only
where the job says so (`AfterLoss`, ADR 0317) and a server's loss is the only trouble; the table of the lineage before
names what each keeps.

Not here: the orders to servers that follow, and their answers (`server_restore`).
"""

from __future__ import annotations

from dataclasses import replace

from master.api.identities import Lineage, Route, Version
from master.api.messages.to_members import Fenced
from master.api.positions import EMPTY
from master.job.domain.durable_records import Backups, LineageRecord, RaiseLineage
from master.job.domain.job_config import AfterLoss
from master.job.placement.backup_placement import place_backups
from master.job.placement.owner_placement import NO_SERVER, place
from master.job.recovery import server_quorum
from master.job.state.bucket_table import owner_of
from master.job.state.commit_attempt import give_up
from master.job.state.dispatch_state import void_leases
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import place_of, put_trainer
from master.job.state.protocol_state import BucketMoves, CommitPhase, RecoveryStage


def lose_model(turn: Turn, problem: str, *, rolls_back: bool = True) -> None:
    """The model is lost: gives up the commit, voids all leases, and has the lineage raised (rule 26).

    `rolls_back`: the other servers must not keep what they have; False where a server was lost and nothing else.
    """
    state = turn.state
    if state.stage in (RecoveryStage.RESTORING, RecoveryStage.READING_MARKS):
        turn.recover(kept=None)  # servers know the table that holds now
    if state.commit.phase not in (
        CommitPhase.IDLE,
        CommitPhase.SWAPPING,
    ):  # writes in flight will still be answered
        give_up(turn, problem)
    going_on = state.stage in (RecoveryStage.ADOPTING, RecoveryStage.RAISING)
    turn.recover(
        stage=state.stage if going_on else RecoveryStage.GATHERING,
        must_raise=True,
        rolls_back=state.recovery.rolls_back or rolls_back,
        is_second_request=False,
        restored=frozenset(),
        resend_at=None,
    )
    server_quorum.await_owners(turn)
    under_way = BucketMoves(intents=state.moves.intents, writing=state.moves.writing)
    turn.change(dispatch=void_leases(turn.state.dispatch), skip=None, reclaim_ends=None, moves=under_way)


def raise_lineage(turn: Turn) -> None:
    """Raise the lineage in one transaction: above all that are known, head, quarantine; with owners (26, 29)."""
    state = turn.state
    known = [state.number, *(server.lineage for server in state.members.servers.values())]
    if state.head:
        known.append(state.head.lineage)
    number = Lineage(1 + max(known))
    quarantine = state.recovery.quarantine | (state.lineage.quarantine if state.lineage else EMPTY)
    turn.recover(
        stage=RecoveryStage.RAISING,
        must_raise=False,
        departed=frozenset(),
        owners_wait_ends=None,
        proceeds_without=False,
    )
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
    servers = server_quorum.next_owners(state)
    index = {server.ordinal: number for number, server in enumerate(servers)}
    held = [index.get(before.servers[owner].ordinal, NO_SERVER) for owner in before.owner] if before else []
    return Route(
        revision=before.revision + 1 if before else 1,
        lineage=number,
        servers=tuple(place_of(one) for one in servers),
        owner=place(bucket_count, len(servers), held),
        version=(Version(0),) * bucket_count,
    )


def _new_backups(state: MasterState, route: Route) -> Backups | None:
    """The second copies, where the job wants them and has servers for them (rule 61).

    A bucket that its owner may keep gets none yet: a backup that reads the base would be behind it (rule 30).  A move
    makes it later.
    """
    if state.config.copies == 1:
        return None
    nowhere, unnamed = (NO_SERVER,) * len(route.owner), (Version(0),) * len(route.owner)
    placed = place_backups(route.owner, len(route.servers), nowhere)
    before = table_for_kept_buckets(state)
    may_stay = [before is not None and owner_of(before, b) == owner_of(route, b) for b in range(len(placed))]
    holder = tuple(NO_SERVER if stays else at for stays, at in zip(may_stay, placed, strict=True))
    return Backups(backup=holder, owner_since=unnamed, backup_since=unnamed)


def table_for_kept_buckets(state: MasterState) -> Route | None:
    """The table of the lineage by which servers keep buckets; an older one if no server got an order since."""
    if state.config.after_loss is AfterLoss.ROLL_BACK or state.recovery.rolls_back:
        return None
    return state.recovery.kept or state.route


def fence_all(turn: Turn, reason: str) -> None:
    """All trainers must register again before anything else of them counts (rule 14)."""
    for trainer in tuple(turn.state.members.registered()):
        turn.change(members=put_trainer(turn.state.members, replace(trainer, is_registered=False)))
        turn.send(trainer.key, Fenced(reason=reason))
