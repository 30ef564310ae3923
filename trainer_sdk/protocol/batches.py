"""What becomes of a batch: given, pushed, answered by every bucket, confirmed (rules 6, 7, 9, 11 and 12).

A bucket may have part of a batch already, or may want it in two parts.  Then the script gets the missing part as a
batch of its own, and its push goes to the buckets that miss it and to no other: the script sees smaller batches, never
the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from master.api.identities import LeaseToken, Lineage
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.protocol.leasing import ask_if_low, flush_acks, renounce, settle_drain
from trainer_sdk.protocol.trainer_events import Discard, GiveBatch, Push, PushAgain
from trainer_sdk.protocol.trainer_state import Flight, Holding, Part, Step, TrainerState
from trainer_sdk.pserver.core.messages import Ruling, Verdict

# ---- giving ---------------------------------------------------------------------------------------------------------


def want(state: TrainerState) -> Step:
    """Give a part that some bucket misses, else from the oldest lease.

    When there is nothing, what is confirmed is acked at once (END may hang on it) and the script waits.
    """
    if state.final:
        return Step(_waiting(state, False), (state.final,))
    if state.parts:
        part, *others = state.parts
        return _give(state, part.token, part.positions, buckets=part.buckets, parts=tuple(others))
    for place, holding in enumerate(state.holdings):
        if holding.rest:
            return _give_from(state, place, holding)
    return flush_acks(_waiting(state, True))


def _waiting(state: TrainerState, is_wanted: bool) -> TrainerState:
    return state if state.is_wanted == is_wanted else replace(state, is_wanted=is_wanted)


def _give_from(state: TrainerState, place: int, holding: Holding) -> Step:
    batch = _cut(state, holding.rest)
    cut = Holding(token=holding.token, rest=holding.rest - batch, confirmed=holding.confirmed)
    holdings = (*state.holdings[:place], cut, *state.holdings[place + 1 :])
    given = _give(state, holding.token, batch, holdings=holdings)
    asked = ask_if_low(given.state)
    return Step(asked.state, given.effects + asked.effects) if asked.effects else given


def _cut(state: TrainerState, rest: PositionSet) -> PositionSet:
    """The next batch: up to batch_size positions of one epoch."""
    assert state.spec is not None
    dataset = state.spec.dataset
    epoch_end = (rest.bounds[0] // dataset.size + 1) * dataset.size
    batch = rest.first(dataset.batch_size)
    return batch if batch.bounds[-1] <= epoch_end else batch & PositionSet.span(0, epoch_end)


def _give(
    state: TrainerState,
    token: LeaseToken,
    positions: PositionSet,
    *,
    buckets: PositionSet = EMPTY,
    holdings: tuple[Holding, ...] | None = None,
    parts: tuple[Part, ...] = (),
) -> Step:
    number = state.next_flight
    flight = Flight(number=number, token=token, positions=positions, buckets=buckets)
    given = state.with_hand(
        holdings=state.holdings if holdings is None else holdings,
        parts=parts,
        flights=(*state.flights, flight),
        next_flight=number + 1,
        is_wanted=False,
    )
    return Step(given, (GiveBatch(flight=number, positions=positions),))


# ---- pulling and pushing --------------------------------------------------------------------------------------------


def pulled(state: TrainerState, lineage: Lineage) -> Step:
    """A newer lineage than ours: the model was rolled back and we have not heard yet (rule 14).

    An older one is remembered as it is: what is computed on it will be dropped.
    """
    if lineage > state.lineage:
        return renounce(state)
    return Step(replace(state, pulled=lineage))


def push(state: TrainerState, number: int) -> Step:
    """Push under the lineage of the pull; a gradient of an older model is dropped and its positions given again."""
    flight = _find(state, number)
    if flight is None:
        return Step(state, (Discard(flight=number),))
    if state.pulled != state.lineage:
        part = Part(token=flight.token, positions=flight.positions, buckets=flight.buckets)
        return Step(replace(_without(state, number), parts=(part, *state.parts)), (Discard(flight=number),))
    buckets = flight.buckets or state.buckets
    effect = Push(flight=number, positions=flight.positions, buckets=buckets, lineage=state.lineage)
    return Step(_with(state, replace(flight, buckets=buckets)), (effect,))


def answered(state: TrainerState, number: int, rulings: tuple[Ruling, ...]) -> Step:
    """Every bucket's word on this push; the flight ends when each has given its last one."""
    flight = _find(state, number)
    if flight is None:
        return Step(state)
    if any(r.verdict is Verdict.STALE_LINEAGE for r in rulings):
        return renounce(state)
    owed = flight.buckets
    parts: list[Part] = []
    for ruling in rulings:
        buckets = ruling.buckets & owed
        pieces = _try_pieces(flight.positions, ruling)
        if pieces is None or not buckets:
            continue
        owed -= buckets
        parts += (Part(token=flight.token, positions=p, buckets=buckets) for p in pieces)
    if parts:
        state = replace(state, parts=merged((*state.parts, *parts)))
    if owed:
        return Step(_with(state, replace(flight, buckets=owed)), (PushAgain(flight=number, buckets=owed),))
    return _conclude(state, flight)


def _try_pieces(positions: PositionSet, ruling: Ruling) -> tuple[PositionSet, ...] | None:
    """What these buckets still miss of the batch, in the pieces to compute; None: the same push has to come again."""
    match ruling.verdict:
        case Verdict.APPLIED | Verdict.REPEAT:
            return ()
        case Verdict.OVERLAP:
            pieces: tuple[PositionSet, ...] = (positions & ruling.positions,)
        case Verdict.SKIPPED:
            pieces = (positions - ruling.positions,)
        case Verdict.SPLIT:
            pieces = (positions & ruling.positions, positions - ruling.positions)
        case Verdict.MOVED | Verdict.FROZEN | Verdict.NOT_YET:  # to whoever owns it by a newer route (rule 50)
            return None
        case Verdict.NOT_READY | Verdict.HELD | Verdict.STALE_LINEAGE:
            return None
        case _:
            assert_never(ruling.verdict)
    return tuple(p for p in pieces if p)


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Equal positions are computed once, for all the buckets that miss them."""
    by_work: dict[tuple[object, PositionSet], Part] = {}
    for part in parts:
        key = (part.token, part.positions)
        known = by_work.get(key)
        by_work[key] = replace(known, buckets=known.buckets | part.buckets) if known else part
    return tuple(by_work.values())


def done(state: TrainerState, number: int) -> Step:
    """The script says so itself: there is no bucket but its own model (rule 33), or no model at all (rule 36)."""
    flight = _find(state, number)
    if flight is None:
        return Step(state)
    if state.own_model:
        state = replace(state, applied=state.applied | flight.positions)
    return _conclude(state, flight)


def _conclude(state: TrainerState, flight: Flight) -> Step:
    """Confirm the positions that no part and no other flight still owes to some bucket (rule 12)."""
    flights = tuple([f for f in state.flights if f.number != flight.number])
    confirmed = flight.positions
    if state.parts or flights:
        pieces: tuple[Part | Flight, ...] = (*state.parts, *flights)
        confirmed -= union(p.positions for p in pieces if p.token == flight.token)
    holdings = tuple(
        [
            Holding(token=h.token, rest=h.rest, confirmed=h.confirmed | confirmed) if _is_of(h, flight.token) else h
            for h in state.holdings
        ]
    )
    state = state.with_hand(
        holdings=holdings,
        parts=state.parts,
        flights=flights,
        next_flight=state.next_flight,
        is_wanted=state.is_wanted,
    )
    return settle_drain(state) if state.is_draining else Step(state)


def _is_of(holding: Holding, token: LeaseToken) -> bool:
    return holding.token.number == token.number and holding.token == token  # the number tells most apart, cheaply


def _find(state: TrainerState, number: int) -> Flight | None:
    for flight in state.flights:
        if flight.number == number:
            return flight
    return None


def _with(state: TrainerState, flight: Flight) -> TrainerState:
    return replace(state, flights=tuple(flight if f.number == flight.number else f for f in state.flights))


def _without(state: TrainerState, number: int) -> TrainerState:
    return replace(state, flights=tuple(f for f in state.flights if f.number != number))
