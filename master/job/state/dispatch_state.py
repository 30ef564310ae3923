"""The dispatch state: every position of a job in exactly one of six places (M2, M4).

    TODO -> LEASED -> DONE -> COMMITTED        SKIPPING -> QUARANTINED
      ^________|________|  (given back, rolled back)

TODO: not leased.  LEASED: in one live lease.  DONE: acked, or known to be in every bucket, but not in head; it
decides what is granted next and nothing else (rule 15).  COMMITTED: in head's data.  SKIPPING, QUARANTINED: rule 31.

Not here: how much to grant and what first (`dispatch.lease_size`), the trainers (`members`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from master.api.identities import Incarnation, Lease
from master.api.positions import EMPTY, PositionSet, union
from master.errors import InvariantViolationError
from master.job.domain.durable_records import Instant
from master.job.domain.frozen_map import FrozenMap, copy_with

NO_REQUEST: Final = -2
_NEVER: Final = Instant(0)


@dataclass(frozen=True, kw_only=True)  # no slots, this one and the next: `copy_with` copies them with each event
class TrainerLeases:
    """One trainer's live leases; `positions` of a lease is what is not acked yet."""

    leases: tuple[Lease, ...] = ()
    progress_deadline: Instant = _NEVER  # without progress until then all of them return (M2)
    request: int = NO_REQUEST  # the newest Acquire that was answered
    granted: tuple[int, ...] = ()  # numbers of the leases that answered it


_NO_LEASES: Final = TrainerLeases()
_NO_HOLDERS: Final[FrozenMap[Incarnation, TrainerLeases]] = FrozenMap()


@dataclass(frozen=True, kw_only=True)
class DispatchState:
    """TODO, LEASED, DONE, SKIPPING, COMMITTED and QUARANTINED partition `everything`."""

    everything: PositionSet = EMPTY
    epoch_size: int = 1
    batch_size: int = 1
    todo: PositionSet = EMPTY
    done: PositionSet = EMPTY
    skipping: PositionSet = EMPTY
    committed: PositionSet = EMPTY
    quarantined: PositionSet = EMPTY
    holders: FrozenMap[Incarnation, TrainerLeases] = _NO_HOLDERS
    lease_count: int = 0
    next_number: int = 1
    wanted_by_cut: PositionSet = EMPTY  # of the open cut: leased before all else (rule 20)
    isolator: Incarnation | None = None  # the trainer that finishes its leases first, to try prime suspects alone (M4)
    granting_from: int = 0  # while leases of an earlier master may be claimed: its high-water mark (rule 18)
    frontier: int = 0  # nothing from here on was ever leased
    reworked: int = 0  # positions that were DONE and are TODO again

    @property
    def leased(self) -> PositionSet:
        return union(lease.positions for holder in self.holders.values() for lease in holder.leases)

    @property
    def is_exhausted(self) -> bool:
        """True if nothing is TODO, LEASED or about to be skipped: time to commit (rule 32)."""
        return not self.todo and not self.lease_count and not self.skipping


def open_dispatch(
    dispatch: DispatchState, *, committed: PositionSet, quarantined: PositionSet, high_water: int
) -> DispatchState:
    """The dispatch state of a new master (rules 17, 18): all that head lacks is TODO.

    Positions below the high-water mark are granted once their earlier leases are reclaimed or given up.
    """
    kept_out = quarantined - committed
    return copy_with(
        dispatch,
        todo=dispatch.everything - committed - kept_out,
        committed=committed,
        quarantined=kept_out,
        granting_from=high_water,
        frontier=high_water,
    )


# ---- what is learnt about positions ----------------------------------------------------------------------------------


def mark_done(dispatch: DispatchState, applied: PositionSet) -> DispatchState:
    """These positions are in every bucket: DONE, whoever holds them (rules 17, 22)."""
    fresh = (
        (applied & dispatch.everything) - dispatch.committed - dispatch.quarantined - dispatch.skipping - dispatch.done
    )
    if not fresh:
        return dispatch
    return copy_with(_trimmed(dispatch, fresh), todo=dispatch.todo - fresh, done=dispatch.done | fresh)


def unmark_done(dispatch: DispatchState, positions: PositionSet) -> DispatchState:
    """These positions were taken for DONE and are not in every bucket: TODO (rule 15)."""
    lost = dispatch.done & positions
    if not lost:
        return dispatch
    return copy_with(
        dispatch, done=dispatch.done - lost, todo=dispatch.todo | lost, reworked=dispatch.reworked + len(lost)
    )


def apply_head(dispatch: DispatchState, data: PositionSet, quarantine: PositionSet) -> DispatchState:
    """Head is a checkpoint with this data state and quarantine."""
    kept_out = (dispatch.quarantined | quarantine) - data
    settled = data | kept_out
    dispatch = _trimmed(dispatch, settled)
    return copy_with(
        dispatch,
        todo=dispatch.todo - settled,
        done=dispatch.done - settled,
        skipping=dispatch.skipping - settled,
        committed=data,
        quarantined=kept_out,
    )


def void_leases(dispatch: DispatchState) -> DispatchState:
    """The model goes back to head: all leases are void and what head lacks is TODO (rules 26, 29)."""
    return copy_with(
        dispatch,
        todo=dispatch.everything - dispatch.committed - dispatch.quarantined,
        done=EMPTY,
        skipping=EMPTY,
        wanted_by_cut=EMPTY,
        isolator=None,
        holders=FrozenMap({key: TrainerLeases(request=holder.request) for key, holder in dispatch.holders.items()}),
        lease_count=0,
        granting_from=0,
        reworked=dispatch.reworked + len(dispatch.done),
    )


def begin_skip(dispatch: DispatchState, positions: PositionSet) -> DispatchState:
    """These positions are SKIPPING, except those in head's data or quarantine (rule 31)."""
    chosen = (positions & dispatch.everything) - dispatch.committed - dispatch.quarantined
    dispatch = _trimmed(dispatch, chosen)
    return copy_with(
        dispatch, todo=dispatch.todo - chosen, done=dispatch.done - chosen, skipping=dispatch.skipping | chosen
    )


def end_skip(dispatch: DispatchState, *, quarantined: bool) -> DispatchState:
    """All of SKIPPING is QUARANTINED, durably; or TODO again where every bucket had applied it."""
    if quarantined:
        return copy_with(dispatch, quarantined=dispatch.quarantined | dispatch.skipping, skipping=EMPTY)
    return copy_with(dispatch, todo=dispatch.todo | dispatch.skipping, skipping=EMPTY)


def add_quarantine(dispatch: DispatchState, quarantine: PositionSet) -> DispatchState:
    """Durable quarantine of positions without a lease, after a roll-back."""
    fresh = quarantine & dispatch.todo
    return (
        copy_with(dispatch, todo=dispatch.todo - fresh, quarantined=dispatch.quarantined | fresh) if fresh else dispatch
    )


def _trimmed(dispatch: DispatchState, settled: PositionSet) -> DispatchState:
    """Live leases without these positions; a lease without positions ends."""
    holders, count = dispatch.holders, 0
    for key, holder in dispatch.holders.items():
        rests = ((lease, lease.positions - settled) for lease in holder.leases)
        leases = tuple(Lease(token=lease.token, positions=rest) for lease, rest in rests if rest)
        count += len(leases)
        if leases != holder.leases:
            holders = holders.put(key, copy_with(holder, leases=leases))
    return copy_with(dispatch, holders=holders, lease_count=count)


def check_invariants(dispatch: DispatchState) -> None:
    """Raises InvariantViolationError unless the six places partition everything and no two leases overlap (M2, M4)."""
    leases = [lease for holder in dispatch.holders.values() for lease in holder.leases]
    places = {
        "todo": dispatch.todo,
        "leased": dispatch.leased,
        "done": dispatch.done,
        "skipping": dispatch.skipping,
        "committed": dispatch.committed,
        "quarantined": dispatch.quarantined,
    }
    if len(dispatch.leased) != sum(len(lease.positions) for lease in leases):
        raise InvariantViolationError(f"M2: a position is in two live leases: {[str(one.positions) for one in leases]}")
    if union(places.values()) != dispatch.everything or sum(map(len, places.values())) != len(dispatch.everything):
        listed = ", ".join(f"{name} {positions}" for name, positions in places.items())
        raise InvariantViolationError(f"M4: these do not partition {dispatch.everything}: {listed}")
    if dispatch.lease_count != len(leases):
        raise InvariantViolationError(f"lease_count is {dispatch.lease_count}, but {len(leases)} leases exist")
