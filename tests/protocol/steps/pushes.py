"""Pushes on their way to servers: they arrive, are answered, are lost."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.draft import Draft
from tests.protocol.steps import relays
from tests.protocol.steps.change import Change, Label
from tests.protocol.steps.relays import ELSEWHERE, WAITING, Said
from tests.protocol.world import Cast, Parcel, World


def of_pushes(cast: Cast, world: World) -> Iterator[Change]:
    for number in world.net:
        parcel = cast.parcels[number]
        process = cast.servers[world.servers[parcel.server]].process
        step, said = cast.push_step(process, parcel.push, parcel.computed_on, None), None
        if step.passes:
            said = relays.said(cast, world, process, parcel, step.passes)
            if said is None:
                yield from relays.passed_on(cast, world, process, parcel, step.passes)
                continue
            step = cast.push_step(process, parcel.push, parcel.computed_on, said)
        assert step.answer is not None
        verdicts = {ruling.verdict for ruling in step.answer.rulings}
        what = (parcel.server, list(parcel.push.positions), parcel.push.lineage, ", ".join(sorted(verdicts)))
        is_changed = step.process != process
        if parcel.sender is None:
            if is_changed:
                label = Label("s{} gets a late push of {} of lineage {}: {}", what)
                yield Change(label, lambda d, p=parcel, n=number, b=said: _arrives(d, n, p, b, is_heard=False))
            continue
        if verdicts & ELSEWHERE and verdicts <= WAITING | ELSEWHERE:
            label = Label("t{3} hears {2} from s{0} for {1}", (*what[:2], what[3], parcel.sender))
            yield Change(label, lambda d, p=parcel, n=number, b=said: _arrives(d, n, p, b, is_heard=True, is_kept=True))
        elif not verdicts <= WAITING:
            label = Label("s{} gets {} of lineage {} from t{}: {}", (*what[:3], parcel.sender, what[3]))
            yield Change(label, lambda d, p=parcel, n=number, b=said: _arrives(d, n, p, b, is_heard=True))
            yield Change(
                Label("the push of {} to s{} is LOST", (what[1], parcel.server)),
                lambda d, n=number: d.net.discard(n),
                "loss",
            )
            if is_changed:
                yield Change(
                    Label("s{} gets {}, its answer to t{} is LOST", (*what[:2], parcel.sender)),
                    lambda d, p=parcel, n=number, b=said: _arrives(d, n, p, b, is_heard=False),
                    "loss",
                )


def _arrives(
    draft: Draft, number: int, parcel: Parcel, said: Said | None, *, is_heard: bool, is_kept: bool = False
) -> None:
    """`is_kept`: the same push goes on coming, as good as one that is sent again at once."""
    slot = draft.server(parcel.server)
    step = draft.cast.push_step(slot.process, parcel.push, parcel.computed_on, said)
    draft.server_stepped(parcel.server, step)
    if is_heard and parcel.sender is not None:
        assert step.answer is not None
        draft.note_answer(parcel.push, step.answer)
        if not is_kept:
            draft.net.discard(number)
        process = draft.trainer(parcel.sender).process
        gradient = process.awaited(parcel.server, parcel.push) if process else None
        if gradient is not None:
            after = draft.cast.answer_step(process, gradient, step.answer)
            draft.trainer_stepped(parcel.sender, after)
            draft.note_confirmed(process.state, after)
