"""What trainers do: their scripts, their streams, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from master.api.positions import union
from master.job.domain.effects import CloseStream
from master.job.domain.job_events import StreamBroken
from tests.protocol.draft import Draft
from tests.protocol.servers import Pulled
from tests.protocol.steps.change import Change, Label
from tests.protocol.trainers import Gradient, TrainerProcess
from tests.protocol.world import NOBODY, Cast, TrainerSlot, World
from trainer_sdk.protocol import trainer_events


def of_trainers(cast: Cast, world: World) -> Iterator[Change]:
    for t, number in enumerate(world.trainers):
        slot, name = cast.trainers[number], f"t{t}"
        if slot.process is None:
            yield Change(Label("{} starts anew", (name,)), lambda d, t=t: _start_trainer(d, t))
            continue
        process, state = slot.process, slot.process.state
        if slot.link != cast.term(world):
            yield Change(Label("{} connects", (name,)), lambda d, t=t: d.connect_trainer(t, d.term()))
        if slot.inbox:
            yield Change(Label("{} hears {}", (name, slot.inbox[0])), lambda d, t=t: _trainer_hears(d, t))
        yield from _of_script(cast, t, process, _pulled(cast, world, process))
        if process.waits_for is not None and process.waits_for == state.request:
            again = trainer_events.AcquireDue(request=state.request)
            yield Change(Label("{} asks again", (name,)), lambda d, t=t, again=again: d.trainer_takes(t, again))
        for gradient in process.computed:
            for server in range(len(world.servers)):
                lost = union(target.buckets for target in process.targets(server, process.owed(gradient)))
                if lost and not _is_on_its_way(cast, world, t, server, gradient):
                    yield Change(
                        Label("{} sends {} to s{} again", (name, list(gradient.positions), server)),
                        lambda d, t=t, gradient=gradient, lost=lost: d.send(t, gradient, lost),
                    )
        yield from _faults_of_trainer(cast, t, slot)


def _pulled(cast: Cast, world: World, process: TrainerProcess) -> tuple[Pulled | None, ...]:
    """What a pull by this trainer's route would get, by bucket."""
    if not cast.setting.servers:
        return ()
    if not process.route:
        return (None,)
    owners = [cast.servers[world.servers[ordinal]].process for ordinal, _ in process.route]
    return tuple(owner.pulled(b) for b, owner in enumerate(owners))


def _of_script(cast: Cast, t: int, process: TrainerProcess, models: tuple[Pulled | None, ...]) -> Iterator[Change]:
    """A batch is computed on one pull; a pull that mixes lineages is done again (rule 9)."""
    if not process.given:
        return
    batch = [p for f in process.state.flights if f.number == process.given[0] for p in f.positions]
    if not models:
        label = Label("t{} has done {}", (t, batch))
        yield Change(label, lambda d: d.trainer_stepped(t, cast.train_step(process)))
    elif process.parameters:
        label = Label("t{} has computed {} and pushes", (t, batch))
        yield Change(label, lambda d: d.trainer_stepped(t, cast.compute_step(process)))
    elif None not in models and is_whole(models):
        step = cast.pull_step if cast.setting.is_slow else cast.batch_step
        label = Label("t{} pulls of {}, computes {}", (t, models[0][0], batch))
        yield Change(label, lambda d: d.trainer_stepped(t, step(process, models)))


def _faults_of_trainer(cast: Cast, t: int, slot: TrainerSlot) -> Iterator[Change]:
    assert slot.process is not None
    state, name = slot.process.state, f"t{t}"
    if state.held_positions or slot.link != NOBODY:
        yield Change(Label("{} CRASHES", (name,)), lambda d: d.end_trainer(t), "trainer_crash")
    if slot.link != NOBODY:
        yield Change(Label("the stream of {} BREAKS", (name,)), lambda d: _break_trainer(d, t), "break_")
    if state.held_positions and not state.is_draining:
        event = trainer_events.DrainRequested(reason="")
        yield Change(Label("{} is DRAINED", (name,)), lambda d: d.trainer_takes(t, event), "drain")
    if state.is_draining:
        late = trainer_events.DrainDeadlinePassed()
        yield Change(Label("{}: GRACE ENDS", (name,)), lambda d: d.trainer_takes(t, late), "drain")
    if state.flights:
        raised = trainer_events.ScriptFailed(message="")
        yield Change(Label("the script of {} RAISES", (name,)), lambda d: d.trainer_takes(t, raised), "raising")


def _is_on_its_way(cast: Cast, world: World, trainer: int, server: int, gradient: Gradient) -> bool:
    parcels = (cast.parcels[number] for number in world.net)
    return any(
        p.sender == trainer
        and p.server == server
        and (p.push.positions, p.push.lineage) == (gradient.positions, gradient.lineage)
        for p in parcels
    )


def _start_trainer(draft: Draft, t: int) -> None:
    births = draft.trainer(t).births
    draft.put_trainer(t, TrainerSlot(process=draft.cast.new_trainer(t, births), births=births))
    draft.connect_trainer(t, draft.term())


def _trainer_hears(draft: Draft, t: int) -> None:
    slot = draft.trainer(t)
    message, *rest = slot.inbox
    if isinstance(message, CloseStream):
        _break_trainer(draft, t)
        return
    draft.put_trainer(t, replace(slot, inbox=tuple(rest)))
    draft.trainer_takes(t, message)
    while (rest := draft.trainer(t).inbox) and not isinstance(rest[0], draft.cast.takes_time):
        draft.put_trainer(t, replace(draft.trainer(t), inbox=rest[1:]))
        draft.trainer_takes(t, rest[0])


def _break_trainer(draft: Draft, t: int) -> None:
    slot = draft.trainer(t)
    assert slot.process is not None
    draft.to_master(slot.link, StreamBroken(member=draft.cast.trainer_key(slot.process)))
    draft.put_trainer(t, replace(slot, link=NOBODY, inbox=()))
    draft.trainer_takes(t, trainer_events.MasterStreamBroken())


def is_whole(models: tuple[Pulled, ...]) -> bool:
    """A pull of one lineage; the client throws away any other (rule 9)."""
    return len({lineage for lineage, _ in models}) == 1
