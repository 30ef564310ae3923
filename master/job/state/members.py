"""Members of a job: trainers by name, servers by ordinal, each one process at a time.

A broken stream opens the reconnect window.  The same incarnation may come back in it; a new one takes the place at
once, and the old one is retired: its late messages count for nothing.  FENCED is no end: a fenced trainer registers
again and continues (rule 14).

Not here: leases (`dispatch_state`), what follows when members come and go (`job.trainers`, `job.servers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from master.api.identities import Incarnation, Lineage, MemberName, ServerPlace
from master.api.messages.from_members import RegisterServer, RegisterTrainer
from master.job.domain.durable_records import Instant, MemberKey
from master.job.domain.frozen_map import FrozenMap

RETIRED_KEPT: Final = 256
"""Incarnations remembered as gone; a late message of an older process could at worst displace its successor."""

_NO_METRICS: Final[FrozenMap[str, float]] = FrozenMap()
NO_RANK: Final = (-1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    key: MemberKey
    ordinal: int
    has_final_hook: bool = False
    is_registered: bool = True  # False: it was sent FENCED, and only its registration counts
    window_ends: Instant | None = None  # set while its stream is broken
    steps: int = 0
    samples_per_s: float = 0.0
    metrics: FrozenMap[str, float] = _NO_METRICS
    waiting_share: float = 0.0  # of its time it waited for servers
    is_computing: bool = False  # as of its last report: on a batch, waiting for nobody
    is_waiting: bool = False  # likewise: for a batch, or for servers
    rank: tuple[int, int] = NO_RANK  # (rank, world size) as last sent to it
    start_by: Instant | None = None  # until then any message counts as progress
    has_worked: bool = False  # completed a batch: what it fails at later may be to blame (M4)
    has_declared: bool = False
    refusal: str = ""  # of its declaration, where any trainer's would be refused: it ends, and the job with it

    @property
    def is_connected(self) -> bool:
        return self.window_ends is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    key: MemberKey
    ordinal: int
    address: str
    lineage: Lineage  # of the model that it holds, by its last report
    away_since: Instant | None = None  # since its stream broke or it is suspected (`disconnect_grace`)
    is_suspected: bool = False  # it is silent though its stream is not broken (`disconnect_grace`)
    is_leaving: bool = False  # it has sent ServerLeaving
    is_released: bool = False  # it was sent Released
    leaves_after: int | None = None  # the first attempt at a commit that is for it, if it leaves with what it owns

    @property
    def is_connected(self) -> bool:
        return self.away_since is None


_NO_TRAINERS: Final[FrozenMap[MemberName, Trainer]] = FrozenMap()
_NO_SERVERS: Final[FrozenMap[int, Server]] = FrozenMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    trainers: FrozenMap[MemberName, Trainer] = _NO_TRAINERS
    servers: FrozenMap[int, Server] = _NO_SERVERS
    retired: tuple[Incarnation, ...] = ()

    def try_trainer(self, key: MemberKey) -> Trainer | None:
        """The trainer's record if this very process is a member."""
        trainer = self.trainers.get(key.name)
        return trainer if trainer and trainer.key == key else None

    def try_server(self, key: MemberKey) -> Server | None:
        """The server's record if this very process is a member."""
        return next((server for server in self.servers.values() if server.key == key), None)

    def registered(self) -> Iterator[Trainer]:
        return (trainer for trainer in self.trainers.values() if trainer.is_registered)


def put_trainer(members: Members, trainer: Trainer) -> Members:
    return replace(members, trainers=members.trainers.put(trainer.key.name, trainer))


def put_server(members: Members, server: Server) -> Members:
    return replace(members, servers=members.servers.put(server.ordinal, server))


def drop_trainer(members: Members, key: MemberKey, *, retired: bool) -> Members:
    """The trainer is no member any more.  `retired`: its process is over and will not register again."""
    members = replace(members, trainers=members.trainers.without(key.name))
    return retire(members, key.incarnation) if retired else members


def drop_server(members: Members, server: Server) -> Members:
    """The server is lost: even the same process comes back as a new one (rule 28)."""
    return replace(members, servers=members.servers.without(server.ordinal))


def retire(members: Members, incarnation: Incarnation) -> Members:
    return replace(members, retired=(*members.retired, incarnation)[-RETIRED_KEPT:])


def trainer_of(registration: RegisterTrainer, before: Trainer | None) -> Trainer:
    """The record of a trainer that registers; reports of the same process are kept."""
    key = MemberKey(name=registration.name, incarnation=registration.incarnation)
    fresh = Trainer(key=key, ordinal=registration.ordinal)
    return replace(
        before if before and before.key == key else fresh,
        ordinal=registration.ordinal,
        has_final_hook=registration.has_final_hook,
        is_registered=True,
        window_ends=None,
    )


def server_of(registration: RegisterServer) -> Server:
    key = MemberKey(name=registration.name, incarnation=registration.incarnation)
    return Server(
        key=key,
        ordinal=registration.ordinal,
        address=registration.address,
        lineage=registration.lineage,
        is_leaving=registration.is_leaving,
    )


def place_of(server: Server) -> ServerPlace:
    """The server as the bucket table names it."""
    key = server.key
    return ServerPlace(name=key.name, incarnation=key.incarnation, address=server.address, ordinal=server.ordinal)


def rank_changes(members: Members) -> tuple[Trainer, ...]:
    """Trainers whose (rank, world size) has changed, with the new one; ranks are dense, by ordinal."""
    in_order = sorted(members.trainers.values(), key=lambda trainer: (trainer.ordinal, trainer.key.name))
    ranked = (replace(trainer, rank=(rank, len(in_order))) for rank, trainer in enumerate(in_order))
    return tuple(now for now, before in zip(ranked, in_order, strict=True) if now.rank != before.rank)
