"""One job as a whole: masters, etcd, storage, servers, trainers, and what is on its way between them.

A world is a tuple of numbers; the values that they stand for, and what the cores answer, are kept by the `Cast`.

Not here: how a world becomes another (`draft`), which steps there are (`steps`), how states that only differ in names
become one (`canonical`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from master import job
from master.api.checkpoints.manifest import Manifest
from master.api.identities import Incarnation, Lineage, MemberName, Term
from master.api.messages.from_members import Declare
from master.api.messages.to_members import (
    Activate,
    Cut,
    Drain,
    Drop,
    Fenced,
    Forget,
    Freeze,
    Hold,
    MasterMessage,
    Released,
    Restore,
    RouteChanged,
    Skip,
)
from master.api.positions import PositionSet
from master.job.domain.durable_records import MemberKey
from master.job.domain.effects import CloseStream
from tests.protocol import claims, masters, servers, trainers
from tests.protocol.interning import Interned, Remembered
from tests.protocol.masters import Etcd, MasterProcess
from tests.protocol.servers import Origins, ServerProcess, Shipment
from tests.protocol.settings import Setting
from tests.protocol.trainers import TrainerProcess
from trainer_sdk.protocol import trainer_state
from trainer_sdk.pserver.core.messages import BackupAnswer, BackupPush, Push
from trainer_sdk.pserver.core.server_state import check_state

NOBODY: Final = Term(0)
TAKES_TIME: Final = (
    Restore,
    Hold,
    Cut,
    Drop,
    Skip,
    Freeze,
    Activate,
    Forget,
    Released,
    Fenced,
    Drain,
    CloseStream,
)


class World(NamedTuple):
    """Every entry is a number, or numbers, of the values that `Cast` keeps."""

    leader: int
    zombies: tuple[int, ...]
    etcd: int
    storage: int
    servers: tuple[int, ...]
    trainers: tuple[int, ...]
    net: tuple[int, ...]
    faults: tuple[int, ...]
    copies: tuple[int, ...] = ()  # shipments
    answered: tuple[PositionSet, ...] = ()  # by bucket, what trainers were told is applied, in the current lineage
    wish: int = 0  # servers that the cluster side wants: it sees to those below, and to no others
    relays: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSlot:
    """A server's place in the job.  `link`: the term of the master that its stream goes to; `inbox`: what is on it."""

    process: ServerProcess
    link: Term = NOBODY
    inbox: tuple[MasterMessage | CloseStream, ...] = ()
    late: tuple[MasterMessage, ...] = ()  # orders of masters before, still on their way
    is_leaving: bool = False
    is_here: bool = True  # False: `process` is the one that will come, if one is wanted here


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSlot:
    """As above.  No process: it has ended, and the next one will be the `births`-th."""

    process: TrainerProcess | None
    births: int = 0
    link: Term = NOBODY
    inbox: tuple[MasterMessage | CloseStream, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A push on its way.  `sender` waits for the answer; None: nobody does any more, and it may still arrive."""

    server: int
    push: Push
    computed_on: Origins
    sender: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A push on its way from an owner to a backup (rule 61); `said`: the answer, on its way back."""

    owner: Incarnation
    one: BackupPush
    lineage: Lineage
    positions: PositionSet
    computed_on: Origins
    said: tuple[BackupAnswer, ...] = ()

    @property
    def push(self) -> Push:
        return Push(lineage=self.lineage, positions=self.positions, targets=self.one.targets)


class Cast:
    """All values that occur in one exploration, and the cores' answers, remembered."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.masters: Interned[MasterProcess] = Interned()
        self.etcds: Interned[Etcd] = Interned()
        self.storages: Interned[tuple[Manifest, ...]] = Interned()
        self.servers: Interned[ServerSlot] = Interned()
        self.trainers: Interned[TrainerSlot] = Interned()
        self.parcels: Interned[Parcel] = Interned()
        self.shipments: Interned[Shipment] = Interned()
        self.relays: Interned[Relay] = Interned()
        self.takes_time = (*TAKES_TIME, RouteChanged) if setting.is_moving else TAKES_TIME
        self._server_processes: Interned[ServerProcess] = Interned()
        self._trainer_processes: Interned[TrainerProcess] = Interned()
        size, pipeline, late = setting.positions, setting.pipeline, setting.loads_late
        self.master_step = Remembered(lambda m, event: self._master(masters.handled(self.masters[m], event)))
        self.server_step = Remembered(
            lambda process, event: self._server(servers.handled(process, event, size, loads_late=late))
        )
        self.push_step = Remembered(lambda *push: self._server(servers.pushed(*push)))
        self.pass_step = Remembered(lambda *push: self._server(servers.passed(*push)))
        self.copy_step = Remembered(lambda process, copy: self._server(servers.arrived(process, copy, size)))
        self.trainer_step = Remembered(lambda process, event: self._trainer(trainers.handled(process, event, pipeline)))
        self.pull_step = Remembered(lambda process, models: self._trainer(trainers.pulled(process, models, pipeline)))
        self.compute_step = Remembered(lambda process: self._trainer(trainers.computed(process, pipeline)))
        self.batch_step = Remembered(
            lambda process, models: self._trainer(trainers.pulled_and_computed(process, models, pipeline))
        )
        self.train_step = Remembered(lambda process: self._trainer(trainers.trained(process, pipeline)))
        self.answer_step = Remembered(lambda *answer: self._trainer(trainers.answered(*answer, pipeline)))
        self.deadlines = Remembered(lambda m: tuple(d for _, d in job.deadlines(self.masters[m].state)))
        self.is_awaited = Remembered(self._is_awaited)
        self.wrong_with_server = Remembered(
            lambda etcd, slot: claims.wrong_with_server(
                self.etcds[etcd], self.servers[slot].process, is_strict=setting.is_strict
            )
        )
        self.wrong_with_owners = Remembered(
            lambda etcd, answered, *slots: claims.wrong_with_owners(
                self.etcds[etcd], answered, tuple(self.servers[slot].process for slot in slots)
            )
        )

    def _master(self, step: masters.MasterStep) -> masters.MasterStep:
        if self.setting.is_strict:
            job.check_invariants(step.process.state)
        return step

    def _server(self, step: servers.ServerStep) -> servers.ServerStep:
        if self.setting.is_strict:
            check_state(step.process.state)
        return replace(step, process=self._server_processes.same(step.process))

    def _trainer(self, step: trainers.TrainerStep) -> trainers.TrainerStep:
        if self.setting.is_strict:
            trainer_state.check_invariants(step.process.state)
        return replace(step, process=self._trainer_processes.same(step.process))

    def _is_awaited(self, trainer: int, parcel: int) -> bool:
        """True if the trainer in this state waits to hear of this push."""
        process, one = self.trainers[trainer].process, self.parcels[parcel]
        return process is not None and process.awaited(one.server, one.push) is not None

    def term(self, world: World) -> Term:
        """Of the master that leads."""
        return self.masters[world.leader].state.term

    def server_key(self, slot: ServerSlot, server: int) -> MemberKey:
        return MemberKey(name=MemberName(f"s{server}"), incarnation=slot.process.state.incarnation)

    def trainer_key(self, process: TrainerProcess) -> MemberKey:
        return MemberKey(name=process.state.name, incarnation=process.state.incarnation)

    def new_server(self, server: int, births: int) -> ServerProcess:
        return servers.started(Incarnation(f"s{server}.{births}"))

    def new_trainer(self, trainer: int, births: int) -> TrainerProcess:
        return trainers.started(
            MemberName(f"t{trainer}"),
            trainer,
            Incarnation(f"t{trainer}.{births}"),
            Declare(
                dataset=replace(self.setting.dataset, batch_size=self.setting.batches[trainer]),
                tables=self.setting.tables,
            ),
            pipeline=self.setting.pipeline,
        )
