"""What the trainer holds and asks for: registering, acquiring, acking, returning (rules 10, 12, 13, 14 and 18).

Acks are collected and sent before the next Acquire or report, so that a batch boundary needs no call; more leases are
asked for while half of the last grant is still to be given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from master.api.identities import NO_LINEAGE, Lease
from master.api.messages import (
    Ack,
    Acquire,
    Ended,
    Granted,
    Leave,
    Registered,
    RegisterTrainer,
    Return,
    Wait,
)
from master.api.positions import EMPTY, PositionSet, union
from trainer_sdk.protocol.trainer_events import (
    AskLater,
    CheckpointWanted,
    Discard,
    Effect,
    Ending,
    Finish,
    Restart,
    Send,
)
from trainer_sdk.protocol.trainer_state import Flight, Holding, Part, Phase, Step, TrainerState

# ---- registering ----------------------------------------------------------------------------------------------------


def register(state: TrainerState) -> Step:
    """Say who this is and what it holds; nothing but Registered means anything until it is answered."""
    held = tuple(
        Lease(token=h.token, positions=h.rest | h.confirmed | _unconfirmed_of(state, h)) for h in state.holdings
    )
    message = RegisterTrainer(
        name=state.name,
        ordinal=state.ordinal,
        incarnation=state.incarnation,
        lineage=state.lineage,
        held=held,
        has_final_hook=state.has_final_hook,
        applied=state.applied,
    )
    return Step(replace(state, phase=Phase.JOINING, is_asking=False), (Send(message=message),))


def renounce(state: TrainerState) -> Step:
    """Rule 14: drop leases and gradients, register again, keep the process."""
    bare, discards = _drop_all(state)
    if state.phase in {Phase.APART, Phase.LEFT}:
        return Step(bare, discards)
    step = register(bare)
    return Step(step.state, discards + step.effects)


def join(state: TrainerState, message: Registered) -> Step:
    """The master knows this trainer: keep what it lets us keep, declare, ask for work."""
    if state.phase is not Phase.JOINING:
        return Step(state)
    effects: tuple[Effect, ...] = ()
    state = replace(state, phase=Phase.JOINED)
    if message.lineage != state.lineage:
        bare, effects = _drop_all(state)
        data = message.restored_data if state.own_model else EMPTY
        state = replace(bare, lineage=message.lineage, applied=data, committed=data, offer=None)
        effects += (Restart(file=message.restore, data=message.restored_data),)
    state, discards = _keep(state, message.kept)
    effects += discards
    if state.spec and (state.spec.dataset, state.spec.tables) != (message.dataset, message.tables):
        effects += (Send(message=state.spec),)
    if state.offer:
        effects += (Send(message=state.offer),)
    return _then(settle_drain(state) if state.is_draining else ask_if_low(state), effects)


def _drop_all(state: TrainerState) -> tuple[TrainerState, tuple[Effect, ...]]:
    discards = tuple(Discard(flight=f.number) for f in state.flights)
    return replace(state, holdings=(), parts=(), flights=(), pulled=NO_LINEAGE, is_asking=False), discards


def _keep(state: TrainerState, kept: tuple[Lease, ...]) -> tuple[TrainerState, tuple[Effect, ...]]:
    """Stamp the new tokens; what is not kept is dropped, and what was in hand of it is void."""
    confirmed = union(h.confirmed for h in state.holdings)
    holdings: list[Holding] = []
    flights: list[Flight] = []
    parts: list[Part] = []
    for lease in kept:
        mine = [replace(f, token=lease.token) for f in state.flights if f.positions <= lease.positions]
        mine_parts = [replace(p, token=lease.token) for p in state.parts if p.positions <= lease.positions]
        in_hand = union((*(f.positions for f in mine), *(p.positions for p in mine_parts)))
        done = (lease.positions & confirmed) | (lease.positions & state.applied)
        rest = lease.positions - in_hand - done
        holdings.append(Holding(token=lease.token, rest=rest, confirmed=done - in_hand))
        flights += mine
        parts += mine_parts
    alive = {f.number for f in flights}
    void = tuple(Discard(flight=f.number) for f in state.flights if f.number not in alive)
    return replace(state, holdings=tuple(holdings), flights=tuple(flights), parts=tuple(parts)), void


# ---- acquiring ------------------------------------------------------------------------------------------------------


def ask_if_low(state: TrainerState) -> Step:
    """Ask for a lease when what is left to give runs low and no question is open; acks ride along."""
    if state.is_asking or not _can_ask(state):
        return Step(state)
    assert state.spec is not None
    left, low = 0, max(state.spec.dataset.batch_size, state.granted_count // 2)
    for holding in state.holdings:
        left += len(holding.rest)
        if left > low:
            return Step(state)
    return _ask(replace(state, request=state.request + 1))


def ask_again(state: TrainerState, request: int) -> Step:
    """The wait is over, or the answer was lost: the same request again (rule 10)."""
    if not _can_ask(state) or not state.is_asking or request != state.request:
        return Step(state)
    return _ask(state)


def _can_ask(state: TrainerState) -> bool:
    return state.phase is Phase.JOINED and state.spec is not None and not state.is_draining and state.final is None


def _ask(state: TrainerState) -> Step:
    step = flush_acks(replace(state, is_asking=True, is_told_to_wait=False))
    return _then(Step(step.state), (*step.effects, Send(message=Acquire(request=state.request))))


def take(state: TrainerState, message: Granted) -> Step:
    """Leases: of a job that keeps its own model, what the model has already is confirmed at once (rule 33)."""
    if state.phase is not Phase.JOINED or not state.is_asking or message.request != state.request:
        return Step(state)
    known = {h.token for h in state.holdings}
    fresh = [lease for lease in message.leases if lease.token not in known]
    holdings = tuple(
        Holding(token=x.token, rest=x.positions - state.applied, confirmed=x.positions & state.applied) for x in fresh
    )
    state = replace(
        state,
        is_asking=False,
        granted_count=sum(len(x.positions) for x in fresh),
        holdings=state.holdings + holdings,
    )
    return give_back_rest(state) if state.is_draining else ask_if_low(state)


def wait(state: TrainerState, message: Wait) -> Step:
    """Others still hold positions, or a model that only this process has is not committed yet: ask again later."""
    if state.phase is not Phase.JOINED or message.request != state.request:
        return Step(state)
    state = replace(state, is_told_to_wait=True)
    later = AskLater(request=message.request, after_s=message.retry_after_s)
    is_idle = not any(h.rest for h in state.holdings) and not state.flights
    if state.own_model and is_idle and state.applied != state.committed:
        return Step(state, (CheckpointWanted(), later))
    return Step(state, (later,))


def end(state: TrainerState, message: Ended) -> Step:
    """All is committed: whatever is still in hand here has been done by somebody (rule 32)."""
    if state.phase is not Phase.JOINED or message.request != state.request:
        return Step(state)
    bare, discards = _drop_all(state)
    return Step(replace(bare, final=Finish(ending=Ending.ENDED, final_saver=message.final_saver)), discards)


# ---- acking and returning -------------------------------------------------------------------------------------------


def flush_acks(state: TrainerState) -> Step:
    """Ack what every bucket has confirmed; a lease with nothing left in it is forgotten."""
    if state.phase is not Phase.JOINED:
        return Step(state)
    acks = tuple(Send(message=Ack(token=h.token, positions=h.confirmed)) for h in state.holdings if h.confirmed)
    if not acks:
        return Step(state)
    busy = {f.token for f in state.flights} | {p.token for p in state.parts}
    left = tuple(replace(h, confirmed=EMPTY) if h.confirmed else h for h in state.holdings if h.rest or h.token in busy)
    return Step(replace(state, holdings=left), acks)


def give_back_rest(state: TrainerState) -> Step:
    """Return what no flight carries: the front of the queue gets it at once (M7).  Parts are for others to compute."""
    in_flight = union(f.positions for f in state.flights)
    effects: list[Effect] = []
    holdings = []
    for h in state.holdings:
        back = (h.rest | union(p.positions for p in state.parts if p.token == h.token)) - in_flight
        if back:
            effects.append(Send(message=Return(token=h.token, positions=back)))
        if h.confirmed or any(f.token == h.token for f in state.flights):
            holdings.append(replace(h, rest=EMPTY))
    return Step(replace(state, holdings=tuple(holdings), parts=()), tuple(effects) if _is_heard(state) else ())


def drain(state: TrainerState) -> Step:
    """Finish what is in flight, give back the rest now."""
    if state.phase is Phase.LEFT or state.is_draining:
        return Step(state)
    step = give_back_rest(replace(state, is_draining=True))
    final = step.state.final or Finish(ending=Ending.DRAINED)
    return Step(replace(step.state, final=final), step.effects)


def settle_drain(state: TrainerState) -> Step:
    """While draining nothing waits: what is confirmed is acked, what some bucket misses goes back."""
    returned = give_back_rest(state)
    acked = flush_acks(returned.state)
    return _then(Step(acked.state, acked.effects), returned.effects)


def leave(state: TrainerState, reason: str, *, failed: tuple[Effect, ...] = ()) -> Step:
    """Ack what is confirmed, return all else, say good-bye; what was in hand is void."""
    if state.phase is Phase.LEFT:
        return Step(state)
    acked = flush_acks(state)
    returned = give_back_rest(_put_back(acked.state))
    bare, discards = _drop_all(state)
    gone = replace(bare, phase=Phase.LEFT, final=state.final or Finish(ending=Ending.DRAINED))
    if not _is_heard(state):
        return Step(gone, discards)
    farewell = Send(message=Leave(reason=reason))
    return Step(gone, (*acked.effects, *failed, *returned.effects, *discards, farewell))


def _put_back(state: TrainerState) -> TrainerState:
    """The same holdings with what was in flight put back to the rest."""
    holdings = tuple(replace(h, rest=h.rest | _unconfirmed_of(state, h)) for h in state.holdings)
    return replace(state, holdings=holdings, flights=(), parts=())


def _unconfirmed_of(state: TrainerState, holding: Holding) -> PositionSet:
    return union(p.positions for p in state.pieces if p.token == holding.token)


def _is_heard(state: TrainerState) -> bool:
    return state.phase is Phase.JOINED


def _then(step: Step, first: Iterable[Effect]) -> Step:
    return Step(step.state, (*first, *step.effects))
