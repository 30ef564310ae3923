"""A trainer in the checker's world: the real core, and around it a shell and a script that is always ready.

The script takes a batch as soon as it may; it pulls, computes and pushes in one step of the world (a gradient that
takes long is one that lies in the network long).  A server's answer is handed to the core when it arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from master.api.identities import Incarnation, Lineage, MemberName, Route, Version
from master.api.messages.from_members import Declare, Leave, TrainerMessage
from master.api.positions import PositionSet, union
from tests.protocol.interning import hashed_once
from tests.protocol.servers import Pulled
from trainer_sdk.protocol import trainer_events, transitions
from trainer_sdk.protocol.trainer_events import FinishReason
from trainer_sdk.protocol.trainer_state import TrainerPhase, TrainerState
from trainer_sdk.pserver.core.messages import Push, PushAnswer, PushTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """What a flight has computed and pushed: these positions, for these buckets, as of this lineage."""

    flight: int
    positions: PositionSet
    buckets: PositionSet
    lineage: Lineage  # that the push names
    computed_on: tuple[Pulled, ...]  # what its parameters really were, by bucket


@dataclass(frozen=True, kw_only=True)
class TrainerProcess:
    """One process.  `given` are flights to be computed, `computed` those that have been pushed."""

    state: TrainerState
    route: tuple[tuple[int, Version], ...] = ()  # ordinal of the owner and version, by bucket; empty: not known
    parameters: tuple[Pulled, ...] = ()  # what the script has pulled, by bucket; empty: nothing since its last push
    given: tuple[int, ...] = ()
    computed: tuple[Gradient, ...] = ()
    waits_for: int | None = None  # the request that the master has told to wait with
    ending: FinishReason | None = None
    __hash__ = hashed_once

    def owed(self, gradient: Gradient) -> PositionSet:
        """Buckets that have not given their last word on this gradient."""
        flight = next((f for f in self.state.flights if f.number == gradient.flight), None)
        return flight.buckets & gradient.buckets if flight else PositionSet()

    def targets(self, server: int, buckets: PositionSet) -> tuple[PushTarget, ...]:
        """Those of these buckets that a server owns by this trainer's route, as its pushes name them."""
        versions = {version for ordinal, version in self.route if ordinal == server}
        found = (
            PushTarget(
                buckets=PositionSet.of(*(b for b in buckets if self.route[b] == (server, version))), version=version
            )
            for version in sorted(versions)
        )
        return tuple(target for target in found if target.buckets)

    def awaited(self, server: int, push: Push) -> Gradient | None:
        """What it still waits to hear of when this push to a server is answered, in the terms that it knows it by."""
        for gradient in self.computed:
            if (gradient.positions, gradient.lineage) != (push.positions, push.lineage):
                continue
            addressed = union(target.buckets for target in push.targets)
            if self.targets(server, addressed) == push.targets and self.owed(gradient) & addressed:
                return gradient
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStep:
    process: TrainerProcess
    said: tuple[TrainerMessage, ...] = ()
    pushed: tuple[Gradient, ...] = ()
    is_told_end: bool = False

    @property
    def has_left(self) -> bool:
        return self.process.state.phase is TrainerPhase.LEFT


def started(
    name: MemberName, ordinal: int, incarnation: Incarnation, declared: Declare, *, pipeline: int
) -> TrainerProcess:
    state = TrainerState(name=name, ordinal=ordinal, incarnation=incarnation)
    return handled(TrainerProcess(state=state), trainer_events.SpecDeclared(spec=declared), pipeline).process


def pulled(process: TrainerProcess, models: tuple[Pulled, ...], pipeline: int) -> TrainerStep:
    """The script has pulled the parameters of all servers; they are of one lineage, or the client pulls again."""
    step = handled(process, trainer_events.ParametersPulled(lineage=models[0][0]), pipeline)
    return replace(step, process=replace(step.process, parameters=models))


def computed(process: TrainerProcess, pipeline: int) -> TrainerStep:
    """The script has computed its oldest batch on what it pulled, and pushes it."""
    flight, *others = process.given
    step = handled(replace(process, given=tuple(others)), trainer_events.PushRequested(flight=flight), pipeline)
    return replace(step, process=replace(step.process, parameters=()))


def pulled_and_computed(process: TrainerProcess, models: tuple[Pulled, ...], pipeline: int) -> TrainerStep:
    """Both at once."""
    step = pulled(process, models, pipeline)
    return _after(step, computed(step.process, pipeline)) if step.process.given else step


def trained(process: TrainerProcess, pipeline: int) -> TrainerStep:
    """A job without servers: the script has done its oldest batch."""
    flight, *others = process.given
    return handled(replace(process, given=tuple(others)), trainer_events.BatchDone(flight=flight), pipeline)


def answered(process: TrainerProcess, gradient: Gradient, answer: PushAnswer, pipeline: int) -> TrainerStep:
    """One server's answer to this gradient has arrived."""
    return handled(process, trainer_events.PushAnswered(flight=gradient.flight, rulings=answer.rulings), pipeline)


def handled(process: TrainerProcess, event: trainer_events.TrainerEvent, pipeline: int) -> TrainerStep:
    """The core's answer to an event, with all that the shell and the script do at once upon it.

    `pipeline`: how many batches the script has in hand before it waits for answers.
    """
    step = _once(process, event)
    while (following := _at_once(step.process, pipeline)) is not None:
        step = _after(step, _once(step.process, following))
    return replace(step, process=_renumbered(step.process))


def _at_once(process: TrainerProcess, pipeline: int) -> trainer_events.TrainerEvent | None:
    if process.state.phase is TrainerPhase.LEFT:
        return None
    if process.ending is not None:
        return trainer_events.LeaveRequested(reason="")
    if not process.state.is_script_waiting and len(process.state.flights) < pipeline:
        return trainer_events.BatchRequested()
    return None


def _once(process: TrainerProcess, event: trainer_events.TrainerEvent) -> TrainerStep:
    said: list[TrainerMessage] = []
    pushed: list[Gradient] = []
    is_told_end = False
    step = transitions.handle(process.state, event)
    after = replace(process, state=step.state)
    for effect in step.effects:
        match effect:
            case trainer_events.SendToMaster(message=message):
                said.append(replace(message, reason="") if isinstance(message, Leave) else message)
            case trainer_events.AcquireLater(request=request):
                after = replace(after, waits_for=request)
            case trainer_events.GiveBatch(flight=flight):
                after = replace(after, given=(*after.given, flight))
            case trainer_events.SendPush(flight=flight, positions=positions, buckets=buckets, lineage=lineage):
                gradient = Gradient(
                    flight=flight,
                    positions=positions,
                    buckets=buckets,
                    lineage=lineage,
                    computed_on=after.parameters,
                )
                pushed.append(gradient)
                after = replace(after, computed=(*after.computed, gradient))
            case trainer_events.UseRoute(route=route):
                after = replace(after, route=_slim(route))
            case trainer_events.Finish(reason=ending):
                after = replace(after, ending=ending)
                is_told_end |= ending is FinishReason.ENDED
            case _:
                pass  # a push that has to come again is still on its way, or the world loses it and sends it again
    return TrainerStep(process=_tidied(after), said=tuple(said), pushed=tuple(pushed), is_told_end=is_told_end)


def _slim(route: Route) -> tuple[tuple[int, Version], ...]:
    """What of a route a trainer uses: servers are called s0, s1, ... and are found by their names."""
    ordinals = [int(place.name[1:]) for place in route.servers]
    return tuple((ordinals[owner], version) for owner, version in zip(route.owner, route.version, strict=True))


def _after(first: TrainerStep, second: TrainerStep) -> TrainerStep:
    return TrainerStep(
        process=second.process,
        said=first.said + second.said,
        pushed=first.pushed + second.pushed,
        is_told_end=first.is_told_end or second.is_told_end,
    )


def _tidied(process: TrainerProcess) -> TrainerProcess:
    """Forgets what belongs to flights that are over."""
    flights = {f.number for f in process.state.flights}
    return replace(
        process,
        given=tuple(number for number in process.given if number in flights),
        computed=tuple(g for g in process.computed if g.flight in flights),
        waits_for=process.waits_for if process.state.is_acquiring else None,
    )


def _renumbered(process: TrainerProcess) -> TrainerProcess:
    """Flights are told apart by their numbers and nothing else, so they may count from 0 again."""
    state = process.state
    new = {f.number: place for place, f in enumerate(state.flights)}
    if state.next_flight == len(new) and all(old == now for old, now in new.items()):
        return process
    flights = tuple(replace(f, number=new[f.number]) for f in state.flights)
    return replace(
        process,
        state=replace(state, flights=flights, next_flight=len(new)),
        given=tuple(new[number] for number in process.given),
        computed=tuple(replace(g, flight=new[g.flight]) for g in process.computed),
    )
