"""Leases of a trainer: registering, acquiring, acking, returning (rules 10, 12, 13, 14 and 18).

Acks are collected and sent before the next Acquire, with the next report, or when the script has nothing to do, so a
batch boundary needs no message.  The next lease is acquired while half of the last grant is still to be given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from master.api.identities import NO_LINEAGE, Lease
from master.api.messages.from_members import Ack, Acquire, Leave, RegisterTrainer, Return
from master.api.messages.to_members import Ended, Granted, Registered, Wait
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.protocol.trainer_events import (
    AcquireLater,
    Discard,
    Finish,
    FinishReason,
    SendToMaster,
    TrainerEffect,
)
from trainer_sdk.protocol.trainer_state import (
    Flight,
    LeaseProgress,
    MissingPart,
    TrainerPhase,
    TrainerState,
    TrainerStep,
)

# ---- registering ----------------------------------------------------------------------------------------------------


def register(state: TrainerState) -> TrainerStep:
    """Registers with the leases held; until Registered comes, other messages are ignored."""
    held = tuple(
        Lease(token=h.token, positions=h.remaining | h.confirmed | _unconfirmed_of(state, h)) for h in state.leases
    )
    message = RegisterTrainer(
        name=state.name,
        ordinal=state.ordinal,
        incarnation=state.incarnation,
        held=held,
        has_final_hook=state.has_final_hook,
    )
    return TrainerStep(replace(state, phase=TrainerPhase.JOINING, is_acquiring=False), (SendToMaster(message=message),))


def drop_and_register(state: TrainerState) -> TrainerStep:
    """Drops leases and gradients and registers again, with the same process (rule 14)."""
    bare, discards = _drop_all(state)
    if state.phase in {TrainerPhase.DISCONNECTED, TrainerPhase.LEFT}:
        return TrainerStep(bare, discards)
    step = register(bare)
    return TrainerStep(step.state, discards + step.effects)


def handle_registered(state: TrainerState, message: Registered) -> TrainerStep:
    """Registered: keeps the leases that the master lists, declares, and acquires work."""
    if state.phase is not TrainerPhase.JOINING:
        return TrainerStep(state)
    effects: tuple[TrainerEffect, ...] = ()
    state = replace(state, phase=TrainerPhase.JOINED)
    if message.lineage != state.lineage:
        bare, effects = _drop_all(state)
        state = replace(bare, lineage=message.lineage)
    state, discards = _keep_leases(state, message.kept)
    effects += discards
    if state.spec and (state.spec.dataset, state.spec.tables) != (message.dataset, message.tables):
        effects += (SendToMaster(message=state.spec),)
    return _then(flush_drain(state) if state.is_draining else acquire_if_low(state), effects)


def _drop_all(state: TrainerState) -> tuple[TrainerState, tuple[TrainerEffect, ...]]:
    discards = tuple(Discard(flight=f.number) for f in state.flights)
    return replace(state, leases=(), parts=(), flights=(), pulled=NO_LINEAGE, is_acquiring=False), discards


def _keep_leases(state: TrainerState, kept: tuple[Lease, ...]) -> tuple[TrainerState, tuple[TrainerEffect, ...]]:
    """Puts new tokens on the leases kept; the others are dropped with their batches."""
    confirmed = union(h.confirmed for h in state.leases)
    leases: list[LeaseProgress] = []
    flights: list[Flight] = []
    parts: list[MissingPart] = []
    for lease in kept:
        mine = [replace(f, token=lease.token) for f in state.flights if f.positions <= lease.positions]
        mine_parts = [replace(p, token=lease.token) for p in state.parts if p.positions <= lease.positions]
        in_hand = union((*(f.positions for f in mine), *(p.positions for p in mine_parts)))
        done = lease.positions & confirmed
        remaining = lease.positions - in_hand - done
        leases.append(LeaseProgress(token=lease.token, remaining=remaining, confirmed=done - in_hand))
        flights += mine
        parts += mine_parts
    alive = {f.number for f in flights}
    void = tuple(Discard(flight=f.number) for f in state.flights if f.number not in alive)
    return replace(state, leases=tuple(leases), flights=tuple(flights), parts=tuple(parts)), void


# ---- acquiring ------------------------------------------------------------------------------------------------------


def acquire_if_low(state: TrainerState) -> TrainerStep:
    """Acquires a lease if little is left to give and no request is open; acks are sent along."""
    if state.is_acquiring or not _can_acquire(state):
        return TrainerStep(state)
    assert state.spec is not None
    left, low = 0, max(state.spec.dataset.batch_size, state.granted_count // 2)
    for holding in state.leases:
        left += len(holding.remaining)
        if left > low:
            return TrainerStep(state)
    return _acquire(replace(state, request=state.request + 1))


def acquire_again(state: TrainerState, request: int) -> TrainerStep:
    """Sends the same request again, after a wait or a lost answer (rule 10)."""
    if not _can_acquire(state) or not state.is_acquiring or request != state.request:
        return TrainerStep(state)
    return _acquire(state)


def _can_acquire(state: TrainerState) -> bool:
    return (
        state.phase is TrainerPhase.JOINED and state.spec is not None and not state.is_draining and state.final is None
    )


def _acquire(state: TrainerState) -> TrainerStep:
    step = flush_acks(replace(state, is_acquiring=True, must_wait=False))
    return _then(TrainerStep(step.state), (*step.effects, SendToMaster(message=Acquire(request=state.request))))


def handle_granted(state: TrainerState, message: Granted) -> TrainerStep:
    """Takes granted leases, and acquires more if they are little."""
    if state.phase is not TrainerPhase.JOINED or not state.is_acquiring or message.request != state.request:
        return TrainerStep(state)
    known = {h.token for h in state.leases}
    fresh = [lease for lease in message.leases if lease.token not in known]
    leases = tuple(LeaseProgress(token=x.token, remaining=x.positions) for x in fresh)
    state = replace(
        state,
        is_acquiring=False,
        granted_count=sum(len(x.positions) for x in fresh),
        leases=state.leases + leases,
    )
    return return_rest(state) if state.is_draining else acquire_if_low(state)


def handle_wait(state: TrainerState, message: Wait) -> TrainerStep:
    """Acquires later: others hold positions, or the last ones are not committed yet."""
    if state.phase is not TrainerPhase.JOINED or message.request != state.request:
        return TrainerStep(state)
    state = replace(state, must_wait=True)
    later = AcquireLater(request=message.request, after_s=message.retry_after_s)
    return TrainerStep(state, (later,))


def handle_ended(state: TrainerState, message: Ended) -> TrainerStep:
    """Ends: all is committed, so batches still in hand here were trained by another trainer too (rule 32)."""
    if state.phase is not TrainerPhase.JOINED or message.request != state.request:
        return TrainerStep(state)
    bare, discards = _drop_all(state)
    return TrainerStep(
        replace(bare, final=Finish(reason=FinishReason.ENDED, final_saver=message.final_saver)), discards
    )


# ---- acking and returning -------------------------------------------------------------------------------------------


def flush_acks(state: TrainerState) -> TrainerStep:
    """Acks what every bucket has confirmed; a lease with nothing left in it is dropped."""
    if state.phase is not TrainerPhase.JOINED:
        return TrainerStep(state)
    acks = tuple(SendToMaster(message=Ack(token=h.token, positions=h.confirmed)) for h in state.leases if h.confirmed)
    if not acks:
        return TrainerStep(state)
    busy = {f.token for f in state.flights} | {p.token for p in state.parts}
    left = tuple(
        replace(h, confirmed=EMPTY) if h.confirmed else h for h in state.leases if h.remaining or h.token in busy
    )
    return TrainerStep(replace(state, leases=left), acks)


def return_rest(state: TrainerState) -> TrainerStep:
    """Returns the positions of no flight, missing parts included; the queue gets them at once, at its front (M7)."""
    in_flight = union(f.positions for f in state.flights)
    effects: list[TrainerEffect] = []
    leases = []
    for h in state.leases:
        back = (h.remaining | union(p.positions for p in state.parts if p.token == h.token)) - in_flight
        if back:
            effects.append(SendToMaster(message=Return(token=h.token, positions=back)))
        if h.confirmed or any(f.token == h.token for f in state.flights):
            leases.append(replace(h, remaining=EMPTY))
    return TrainerStep(replace(state, leases=tuple(leases), parts=()), tuple(effects) if _is_joined(state) else ())


def handle_drain(state: TrainerState) -> TrainerStep:
    """Drains: batches in flight are finished, the rest is returned now."""
    if state.phase is TrainerPhase.LEFT or state.is_draining:
        return TrainerStep(state)
    step = return_rest(replace(state, is_draining=True))
    final = step.state.final or Finish(reason=FinishReason.DRAINED)
    return TrainerStep(replace(step.state, final=final), step.effects)


def flush_drain(state: TrainerState) -> TrainerStep:
    """While draining: acks what is confirmed and returns what some bucket misses, without waiting."""
    returned = return_rest(state)
    acked = flush_acks(returned.state)
    return _then(TrainerStep(acked.state, acked.effects), returned.effects)


def leave(state: TrainerState, reason: str, *, failed: tuple[TrainerEffect, ...] = ()) -> TrainerStep:
    """Acks what is confirmed, returns all else and leaves; batches in hand are discarded."""
    if state.phase is TrainerPhase.LEFT:
        return TrainerStep(state)
    acked = flush_acks(state)
    returned = return_rest(_put_back(acked.state))
    bare, discards = _drop_all(state)
    left_state = replace(bare, phase=TrainerPhase.LEFT, final=state.final or Finish(reason=FinishReason.DRAINED))
    if not _is_joined(state):
        return TrainerStep(left_state, discards)
    farewell = SendToMaster(message=Leave(reason=reason))
    return TrainerStep(left_state, (*acked.effects, *failed, *returned.effects, *discards, farewell))


def _put_back(state: TrainerState) -> TrainerState:
    """The same leases with what was in flight put back to the rest."""
    leases = tuple(replace(h, remaining=h.remaining | _unconfirmed_of(state, h)) for h in state.leases)
    return replace(state, leases=leases, flights=(), parts=())


def _unconfirmed_of(state: TrainerState, holding: LeaseProgress) -> PositionSet:
    return union(p.positions for p in state.pieces if p.token == holding.token)


def _is_joined(state: TrainerState) -> bool:
    return state.phase is TrainerPhase.JOINED


def _then(step: TrainerStep, first: Iterable[TrainerEffect]) -> TrainerStep:
    return TrainerStep(step.state, (*first, *step.effects))
