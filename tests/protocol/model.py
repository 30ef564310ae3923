"""The model that `explore` walks: one small job with the real cores in it.

Its steps are in `steps`, what it checks in `claims`, its first states in `configs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from master import errors as master_errors
from master.api.positions import EMPTY
from tests.protocol import masters
from tests.protocol.canonical import Canon
from tests.protocol.draft import Draft
from tests.protocol.explore import Move
from tests.protocol.settings import Faults, Setting, recorded
from tests.protocol.steps import masters as master_steps
from tests.protocol.steps import moves, pushes, relays
from tests.protocol.steps import servers as server_steps
from tests.protocol.steps import trainers as trainer_steps
from tests.protocol.steps.change import Change, Label
from tests.protocol.world import Cast, ServerSlot, TrainerSlot, World
from trainer_sdk import errors as sdk_errors
from trainer_sdk.protocol import trainer_events

KINDS = tuple(Faults.__dataclass_fields__)
BUDGET = attrgetter(*KINDS)
BROKEN = (AssertionError, master_errors.InvariantViolationError, sdk_errors.InvariantViolationError)


class JobModel:
    """The model that `explore` walks: one small job with the real cores in it."""

    def __init__(self, setting: Setting) -> None:
        self.cast = Cast(setting)
        self.canon = Canon(self.cast)
        self.setting = setting

    # ---- the model's three questions ------------------------------------------------------------------------------

    def initial(self) -> World:
        """Servers hold an empty model of lineage 1; all trainers come at once and share what there is to do."""
        cast, setting = self.cast, self.setting
        etcd = recorded(setting)
        step = masters.started(setting.job, etcd)
        world = World(
            leader=cast.masters.number(step.process),
            zombies=(),
            etcd=cast.etcds.number(etcd),
            storage=cast.storages.number(()),
            servers=tuple(
                cast.servers.number(ServerSlot(process=cast.new_server(s, 0), is_here=s < setting.job.servers))
                for s in range(setting.servers)
            ),
            trainers=tuple(
                cast.trainers.number(TrainerSlot(process=cast.new_trainer(t, 0))) for t in range(setting.trainers)
            ),
            net=(),
            faults=BUDGET(setting.faults),
            answered=(EMPTY,) * setting.buckets if setting.is_moving else (),
            wish=setting.job.servers,
        )
        while (begun := self._next_of_the_beginning(world)) is not None:
            world = begun
        return self._after(world, Change(Label("all trainers connect"), self._connect_trainers)).target

    def _connect_trainers(self, draft: Draft) -> None:
        for t in range(self.setting.trainers):
            draft.connect_trainer(t, draft.term())

    def is_end(self, world: World) -> bool:
        """Some trainer was told END."""
        processes = (self.cast.trainers[t].process for t in world.trainers)
        return any(p is not None and p.ending is trainer_events.FinishReason.ENDED for p in processes)

    def moves(self, world: World) -> Iterator[Move[World]]:
        for change in self._changes(world):
            if change.fault not in KINDS or world.faults[KINDS.index(change.fault)]:
                yield self._after(world, change)

    def _next_of_the_beginning(self, world: World) -> World | None:
        """Before the first trainer, one order of steps is as good as another."""
        for change in (*server_steps.of_servers(self.cast, world), *master_steps.of_leader(self.cast, world)):
            if change.fault is None and not change.label.what.startswith("time"):
                return self._after(world, change).target
        return None

    def _after(self, world: World, change: Change) -> Move[World]:
        draft = Draft(self.cast, world)
        if change.fault in KINDS:
            draft.faults = tuple(n - (kind == change.fault) for kind, n in zip(KINDS, world.faults, strict=True))
        try:
            change.make(draft)
            draft.settle()
            master_steps.reserve(draft)
        except BROKEN as error:
            if not self.setting.is_strict:  # the master ends rather than go on
                return Move(change.label, world, is_fault=True)
            return Move(change.label, world, change.fault is not None, f"{type(error).__name__}: {error}")
        return Move(change.label, self.canon.of(draft), change.fault is not None, draft.violation)

    def _changes(self, world: World) -> Iterator[Change]:
        yield from trainer_steps.of_trainers(self.cast, world)
        yield from pushes.of_pushes(self.cast, world)
        yield from relays.of_relays(self.cast, world)
        yield from moves.of_copies(self.cast, world)
        yield from moves.of_moves(self.cast, world)
        yield from moves.of_wishes(self.cast, world)
        yield from server_steps.of_servers(self.cast, world)
        yield from master_steps.of_leader(self.cast, world)
        yield from master_steps.of_zombies(self.cast, world)
        yield Change(Label("a second master takes over"), master_steps.take_over, "take_over")
