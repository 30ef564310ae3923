"""Restore after a raise of the lineage: servers load the base, or keep what they may (rules 14, 26, 27, 30).

The master names the buckets that a server owned before and owns again (`KeptBuckets`); whether it still has them the
server checks itself (`trainer_sdk.pserver.core.restore`).  Once all have answered, the job serves.  Where some kept
buckets, marks differ as they do under a new master, and `model_recovery` reads them first.

Not here: the raise itself (`rollback`).
"""

from __future__ import annotations

from typing import Final

from master.api.identities import ServerPlace, Version
from master.api.messages.from_members import Restored, RestoreFailed
from master.api.messages.to_members import BackedBuckets, KeptBuckets, Refused, Restore
from master.api.positions import EMPTY, PositionSet
from master.job.dispatch import high_water
from master.job.domain.durable_records import RaiseLineage
from master.job.domain.effects import FallBack
from master.job.moves import rebalancing
from master.job.recovery import model_recovery, rollback, server_quorum
from master.job.state.bucket_table import backed, backup_place, by_version, copy_holders, owned
from master.job.state.commit_attempt import retain
from master.job.state.dispatch_state import add_quarantine, void_leases
from master.job.state.job_state import MasterState, Turn
from master.job.state.members import Server
from master.job.state.protocol_state import BucketMoves, RecoveryStage

_WAYS_ON: Final = (
    "Retries for EDL_UNREADABLE_S failed; nothing was changed or deleted.  Restore the file, or restart "
    "the job from another checkpoint (edl run --from, spec.checkpoint.start); `edl data verify URI` lists "
    "the intact ones"
)


def handle_raised(turn: Turn, write: RaiseLineage) -> None:
    """The new lineage is durable: trainers of the old one are fenced, and servers restore (rules 14, 26, 30)."""
    turn.recover(kept=rollback.table_for_kept_buckets(turn.state))
    turn.change(
        lineage=write.new,
        route=write.route or turn.state.route,
        backups=write.backups,
        moves=BucketMoves(),
        dispatch=add_quarantine(void_leases(turn.state.dispatch), write.new.quarantine),
        reclaim_ends=None,
    )
    high_water.stop_waiting_for_trainers(turn)  # the leases of its lineage are void
    turn.recover(quarantine=EMPTY)
    retain(turn)
    rollback.fence_all(turn, f"the model is of lineage {write.new.number} now: register again")
    state = turn.state
    if not state.config.servers:
        model_recovery.serve(turn)
    elif state.recovery.must_raise or not all(_copy_holders(state)):
        turn.recover(stage=RecoveryStage.GATHERING, must_raise=True)
        server_quorum.await_owners(turn)
    else:
        turn.recover(
            stage=RecoveryStage.RESTORING,
            rolls_back=False,
            restored=frozenset(),
            resend_at=turn.after(state.config.answer_timeout_ns),
            problem="",
        )
        for server in state.members.servers.values():
            resend_restore(turn, server)


def _copy_holders(state: MasterState) -> list[Server | None]:
    """The record of every process that is to have a copy; None: that process is no member."""
    assert state.table is not None
    return [state.members.try_server(holder) for holder in copy_holders(state.table)]


def handle_restored(turn: Turn, server: Server, message: Restored) -> None:
    """The server holds the lineage; once all do, the job serves (rule 27) or reads marks.

    One that joins a job that serves already gets its share planned (rule 49).
    """
    state = turn.state
    if state.stage is RecoveryStage.RESTORING and message.lineage == state.number:
        turn.recover(restored=state.recovery.restored | {server.ordinal})
        if not all(one and one.ordinal in turn.state.recovery.restored for one in _copy_holders(turn.state)):
            return
        if state.recovery.kept is None:
            model_recovery.serve(turn)
        else:
            model_recovery.read_marks(turn)
    elif state.stage is RecoveryStage.SERVING:
        rebalancing.plan_if_needed(turn)


def handle_restore_failed(turn: Turn, server: Server, failure: RestoreFailed) -> None:
    """The order is sent again when it is overdue; lasting damage fails the job in the end (M11)."""
    state = turn.state
    if state.stage is not RecoveryStage.RESTORING or failure.lineage != state.number:
        return
    problem = f"{server.key.name} cannot restore: {failure.message}"
    turn.recover(problem=problem)
    if not failure.is_damaged or state.failed:
        return
    since = turn.now if state.recovery.unreadable_since is None else state.recovery.unreadable_since
    turn.recover(unreadable_since=since)
    if turn.now - since < state.config.unreadable_ns:
        return
    if state.config.falls_back:
        turn.change(is_over=True)
        turn.emit(FallBack(reason=problem))
    else:
        turn.change(failed=f"{problem}.  {_WAYS_ON}")
        for trainer in turn.state.members.registered():  # one that waits for the model asks for nothing more
            turn.send(trainer.key, Refused(field="job", message=turn.state.failed))


def resend_restore(turn: Turn, server: Server) -> None:
    """RESTORE to a server that has not answered it.  May be repeated (rule 27)."""
    state = turn.state
    if state.stage is not RecoveryStage.RESTORING or server.ordinal in state.recovery.restored:
        return
    assert state.table
    assert state.dataset
    assert state.lineage
    now, process = state.table, server.key.incarnation
    mine, standby = owned(now.route, process), backed(now, process)
    if state.has_to_leave(server) and not (mine or standby):
        return
    turn.send(
        server.key,
        Restore(
            incarnation=process,
            lineage=state.number,
            base=state.lineage.base,
            files=state.head.files if state.head else (),
            data=state.head.data if state.head else EMPTY,
            quarantine=state.lineage.quarantine,
            tables=state.dataset.tables,
            bucket_count=len(now.route.owner),
            buckets=mine,
            version=Version(0),
            kept=_kept(state, server),
            backed=_backed(state, mine),
            standby=standby,
        ),
    )


def _kept(state: MasterState, server: Server) -> tuple[KeptBuckets, ...]:
    """The buckets that the server owned before and owns again."""
    before = state.recovery.kept
    if before is None or state.route is None:
        return ()
    mine = owned(before, server.key.incarnation) & owned(state.route, server.key.incarnation)
    return tuple(
        KeptBuckets(lineage=before.lineage, version=version, buckets=buckets)
        for version, buckets in by_version(before, mine).items()
    )


def _backed(state: MasterState, mine: PositionSet) -> tuple[BackedBuckets, ...]:
    """The backups of these buckets."""
    found: dict[ServerPlace, list[int]] = {}
    for bucket in mine:
        if state.table and (place_ := backup_place(state.table, bucket)):
            found.setdefault(place_, []).append(bucket)
    return tuple(BackedBuckets(buckets=PositionSet.of(*buckets), backup=place_) for place_, buckets in found.items())
