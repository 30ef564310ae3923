"""What becomes of a batch: given, pushed, answered by every bucket, confirmed (rules 6, 7, 9, 11 and 12).

A bucket may have part of a batch already, or may want it in two parts.  Then the script gets the missing part as a
batch of its own, and its push goes to the buckets that miss it and to no other: the script sees smaller batches, never
the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, assert_never

from master.api.identities import Lineage
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.protocol.leases import ask_if_low, flush_acks, renounce, settle_drain
from trainer_sdk.protocol.state import Flight, Part, Step, TrainerState
from trainer_sdk.protocol.values import Answer, Discard, GiveBatch, Outcome, Push, PushAgain

# ---- giving ---------------------------------------------------------------------------------------------------------


def want(state: TrainerState) -> Step:
    """The script asks: a part that somebody misses comes first, then the oldest lease; else what we know of the end."""
    return try_give(replace(state, is_wanted=True))


def try_give(state: TrainerState) -> Step:
    """Give what the script waits for, if there is anything; when there is not, say at once what is confirmed."""
    if not state.is_wanted:
        return Step(state)
    if state.final:
        return Step(replace(state, is_wanted=False), (state.final,))
    if state.parts:
        part, *others = state.parts
        return _give(replace(state, parts=tuple(others)), part)
    for place, holding in enumerate(state.holdings):
        if holding.rest:
            batch = _cut(state, holding.rest)
            holdings = list(state.holdings)
            holdings[place] = replace(holding, rest=holding.rest - batch)
            step = _give(
                replace(state, holdings=tuple(holdings)),
                Part(token=holding.token, positions=batch, buckets=EMPTY),
            )
            asked = ask_if_low(step.state)
            return Step(asked.state, step.effects + asked.effects)
    return flush_acks(state)


def _cut(state: TrainerState, rest: PositionSet) -> PositionSet:
    """The next batch: up to batch_size positions of one epoch."""
    assert state.spec is not None
    dataset = state.spec.dataset
    epoch_end = (rest.bounds[0] // dataset.size + 1) * dataset.size
    batch = rest.first(dataset.batch_size)
    return batch if batch.bounds[-1] <= epoch_end else batch & PositionSet.span(0, epoch_end)


def _give(state: TrainerState, part: Part) -> Step:
    flight = Flight(number=state.next_flight, token=part.token, positions=part.positions, buckets=part.buckets)
    given = replace(state, flights=(*state.flights, flight), next_flight=flight.number + 1, is_wanted=False)
    return Step(given, (GiveBatch(flight=flight.number, positions=flight.positions),))


# ---- pulling and pushing --------------------------------------------------------------------------------------------


def pulled(state: TrainerState, lineage: Lineage) -> Step:
    """Parameters of another lineage than ours: the model was rolled back and we have not heard yet (rule 14)."""
    if lineage == state.lineage:
        return Step(replace(state, pulled=lineage))
    return renounce(state)


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


COMPLETE: Final = frozenset({Outcome.APPLIED, Outcome.REPEAT})


def answered(state: TrainerState, number: int, answers: tuple[Answer, ...]) -> Step:
    """Every bucket's word on this push; the flight ends when each has given its last one."""
    flight = _find(state, number)
    if flight is None:
        return Step(state)
    if any(a.outcome is Outcome.STALE_LINEAGE for a in answers):
        return renounce(state)
    owed = flight.buckets
    parts: list[Part] = []
    for answer in answers:
        buckets = answer.buckets & owed
        missing = _missing(flight.positions, answer)
        if missing is None or not buckets:
            continue
        owed -= buckets
        parts += (Part(token=flight.token, positions=p, buckets=buckets) for p in missing)
    state = replace(state, parts=merged((*state.parts, *parts)))
    if owed:
        return Step(_with(state, replace(flight, buckets=owed)), (PushAgain(flight=number, buckets=owed),))
    return _conclude(state, flight)


def _missing(positions: PositionSet, answer: Answer) -> tuple[PositionSet, ...] | None:
    """What these buckets still miss of the batch, in the pieces to compute; None: the same push has to come again."""
    match answer.outcome:
        case Outcome.APPLIED | Outcome.REPEAT:
            return ()
        case Outcome.OVERLAP | Outcome.SKIPPED:
            pieces: tuple[PositionSet, ...] = (positions - answer.positions,)
        case Outcome.SPLIT:
            pieces = (positions & answer.positions, positions - answer.positions)
        case Outcome.MOVED | Outcome.NOT_READY | Outcome.STALE_LINEAGE:
            return None
        case _:
            assert_never(answer.outcome)
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
    state = _without(state, flight.number)
    owing = [p.positions for p in state.pieces if p.token == flight.token]
    confirmed = flight.positions - union(owing) if owing else flight.positions
    holdings = tuple(
        replace(h, confirmed=h.confirmed | confirmed) if h.token == flight.token else h for h in state.holdings
    )
    state = replace(state, holdings=holdings)
    return settle_drain(state) if state.is_draining else Step(state)


def _find(state: TrainerState, number: int) -> Flight | None:
    return next((f for f in state.flights if f.number == number), None)


def _with(state: TrainerState, flight: Flight) -> TrainerState:
    return replace(state, flights=tuple(flight if f.number == flight.number else f for f in state.flights))


def _without(state: TrainerState, number: int) -> TrainerState:
    return replace(state, flights=tuple(f for f in state.flights if f.number != number))
