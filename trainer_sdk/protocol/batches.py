"""Life of a batch: given, pushed, answered by every bucket, confirmed (rules 6, 7, 9, 11 and 12).

A bucket may have part of a batch already, or may need it in two parts.  Then the script gets the missing part as a
batch of its own, and its push goes only to the buckets that miss it: the script sees smaller batches, never the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from master.api.identities import LeaseToken, Lineage
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.protocol.leasing import acquire_if_low, drop_and_register, flush_acks, flush_drain
from trainer_sdk.protocol.trainer_events import Discard, GiveBatch, ResendPush, SendPush
from trainer_sdk.protocol.trainer_state import Flight, LeaseProgress, MissingPart, TrainerState, TrainerStep
from trainer_sdk.pserver.core.messages import PushVerdict, Ruling

# ---- giving ---------------------------------------------------------------------------------------------------------


def handle_batch_requested(state: TrainerState) -> TrainerStep:
    """Gives a part that some bucket misses, else positions of the oldest lease.

    Without either the script waits, and confirmed positions are acked at once, because END may depend on the ack.
    """
    if state.final:
        return TrainerStep(_waiting(state, False), (state.final,))
    if state.parts:
        part, *others = state.parts
        return _give_batch(state, part.token, part.positions, buckets=part.buckets, parts=tuple(others))
    for place, holding in enumerate(state.leases):
        if holding.remaining:
            return _give_from_lease(state, place, holding)
    return flush_acks(_waiting(state, True))


def _waiting(state: TrainerState, is_script_waiting: bool) -> TrainerState:
    return (
        state if state.is_script_waiting == is_script_waiting else replace(state, is_script_waiting=is_script_waiting)
    )


def _give_from_lease(state: TrainerState, place: int, lease: LeaseProgress) -> TrainerStep:
    batch = _next_batch(state, lease.remaining)
    shortened = LeaseProgress(token=lease.token, remaining=lease.remaining - batch, confirmed=lease.confirmed)
    leases = (*state.leases[:place], shortened, *state.leases[place + 1 :])
    given = _give_batch(state, lease.token, batch, leases=leases)
    acquired = acquire_if_low(given.state)
    return TrainerStep(acquired.state, given.effects + acquired.effects) if acquired.effects else given


def _next_batch(state: TrainerState, remaining: PositionSet) -> PositionSet:
    """The next batch: up to batch_size positions of one epoch."""
    assert state.spec is not None
    dataset = state.spec.dataset
    epoch_end = (remaining.bounds[0] // dataset.size + 1) * dataset.size
    batch = remaining.first(dataset.batch_size)
    return batch if batch.bounds[-1] <= epoch_end else batch & PositionSet.span(0, epoch_end)


def _give_batch(
    state: TrainerState,
    token: LeaseToken,
    positions: PositionSet,
    *,
    buckets: PositionSet = EMPTY,
    leases: tuple[LeaseProgress, ...] | None = None,
    parts: tuple[MissingPart, ...] = (),
) -> TrainerStep:
    number = state.next_flight
    flight = Flight(number=number, token=token, positions=positions, buckets=buckets)
    given = state.with_work(
        leases=state.leases if leases is None else leases,
        parts=parts,
        flights=(*state.flights, flight),
        next_flight=number + 1,
        is_script_waiting=False,
    )
    return TrainerStep(given, (GiveBatch(flight=number, positions=positions),))


# ---- pulling and pushing --------------------------------------------------------------------------------------------


def handle_pulled(state: TrainerState, lineage: Lineage) -> TrainerStep:
    """A newer lineage is a roll-back that this trainer has not been notified of: it drops its leases (rule 14).

    An older one is remembered: gradients that are computed on it will be dropped.
    """
    if lineage > state.lineage:
        return drop_and_register(state)
    return TrainerStep(replace(state, pulled=lineage))


def handle_push_requested(state: TrainerState, number: int) -> TrainerStep:
    """Pushes under the lineage of the pull; a gradient of an older model is dropped and its positions given again."""
    flight = _find(state, number)
    if flight is None:
        return TrainerStep(state, (Discard(flight=number),))
    if state.pulled != state.lineage:
        part = MissingPart(token=flight.token, positions=flight.positions, buckets=flight.buckets)
        return TrainerStep(replace(_without(state, number), parts=(part, *state.parts)), (Discard(flight=number),))
    buckets = flight.buckets or state.buckets
    effect = SendPush(flight=number, positions=flight.positions, buckets=buckets, lineage=state.lineage)
    return TrainerStep(_with(state, replace(flight, buckets=buckets)), (effect,))


def handle_push_answered(state: TrainerState, number: int, rulings: tuple[Ruling, ...]) -> TrainerStep:
    """Takes the verdicts of buckets; the flight ends when every bucket has given its last one."""
    flight = _find(state, number)
    if flight is None:
        return TrainerStep(state)
    if any(r.verdict is PushVerdict.STALE_LINEAGE for r in rulings):
        return drop_and_register(state)
    unanswered = flight.buckets
    parts: list[MissingPart] = []
    for ruling in rulings:
        buckets = ruling.buckets & unanswered
        pieces = _try_pieces(flight.positions, ruling)
        if pieces is None or not buckets:
            continue
        unanswered -= buckets
        parts += (MissingPart(token=flight.token, positions=p, buckets=buckets) for p in pieces)
    if parts:
        state = replace(state, parts=merge_parts((*state.parts, *parts)))
    if unanswered:
        return TrainerStep(
            _with(state, replace(flight, buckets=unanswered)), (ResendPush(flight=number, buckets=unanswered),)
        )
    return _conclude(state, flight)


def _try_pieces(positions: PositionSet, ruling: Ruling) -> tuple[PositionSet, ...] | None:
    """The pieces of the batch that these buckets still miss; None: the same push is sent again."""
    match ruling.verdict:
        case PushVerdict.APPLIED | PushVerdict.REPEAT:
            return ()
        case PushVerdict.OVERLAP:
            pieces: tuple[PositionSet, ...] = (positions & ruling.positions,)
        case PushVerdict.SKIPPED:
            pieces = (positions - ruling.positions,)
        case PushVerdict.SPLIT:
            pieces = (positions & ruling.positions, positions - ruling.positions)
        case PushVerdict.MOVED | PushVerdict.FROZEN | PushVerdict.NOT_YET:  # to the owner by a newer route (rule 50)
            return None
        case PushVerdict.NOT_READY | PushVerdict.HELD | PushVerdict.STALE_LINEAGE:
            return None
        case _:
            assert_never(ruling.verdict)
    return tuple(p for p in pieces if p)


def merge_parts(parts: Iterable[MissingPart]) -> tuple[MissingPart, ...]:
    """Parts with equal positions become one, for all buckets that miss them."""
    by_work: dict[tuple[object, PositionSet], MissingPart] = {}
    for part in parts:
        key = (part.token, part.positions)
        known = by_work.get(key)
        by_work[key] = replace(known, buckets=known.buckets | part.buckets) if known else part
    return tuple(by_work.values())


def handle_batch_done(state: TrainerState, number: int) -> TrainerStep:
    """Confirms a batch without servers, in plain sharding (rule 36)."""
    flight = _find(state, number)
    if flight is None:
        return TrainerStep(state)
    return _conclude(state, flight)


def _conclude(state: TrainerState, flight: Flight) -> TrainerStep:
    """Ends the flight and confirms its positions, but for those in a part or another flight (rule 12)."""
    flights = tuple([f for f in state.flights if f.number != flight.number])
    confirmed = flight.positions
    if state.parts or flights:
        pieces: tuple[MissingPart | Flight, ...] = (*state.parts, *flights)
        confirmed -= union(p.positions for p in pieces if p.token == flight.token)
    leases = tuple(
        [
            LeaseProgress(token=h.token, remaining=h.remaining, confirmed=h.confirmed | confirmed)
            if _is_of(h, flight.token)
            else h
            for h in state.leases
        ]
    )
    state = state.with_work(
        leases=leases,
        parts=state.parts,
        flights=flights,
        next_flight=state.next_flight,
        is_script_waiting=state.is_script_waiting,
    )
    return flush_drain(state) if state.is_draining else TrainerStep(state)


def _is_of(holding: LeaseProgress, token: LeaseToken) -> bool:
    return holding.token.number == token.number and holding.token == token  # the number differs first, and is cheap


def _find(state: TrainerState, number: int) -> Flight | None:
    for flight in state.flights:
        if flight.number == number:
            return flight
    return None


def _with(state: TrainerState, flight: Flight) -> TrainerState:
    return replace(state, flights=tuple(flight if f.number == flight.number else f for f in state.flights))


def _without(state: TrainerState, number: int) -> TrainerState:
    return replace(state, flights=tuple(f for f in state.flights if f.number != number))
