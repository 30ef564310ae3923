"""What is explored: a small job, and how often each fault may happen in it.

Not here: the jobs that are explored (`configs`), what a fault is and does (`steps`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from master.api.identities import DatasetSpec, TableSpec
from master.job.domain.durable_records import DatasetRecord
from master.job.domain.job_config import AfterLoss, JobConfig
from master.job.state.protocol_state import CommitPhase
from tests.protocol import masters
from tests.protocol.masters import Etcd


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How often each may happen."""

    trainer_crash: int = 0
    server_crash: int = 0
    take_over: int = 0
    pause: int = 0  # a trainer is silent past its lease, or a member past its reconnect window, and goes on
    drain: int = 0
    raising: int = 0  # a script raises with a batch in hand
    loss: int = 0  # of a push, or of its answer
    break_: int = 0  # of a member's stream, with what is on it
    deadline: int = 0  # of a hold, a fork or a cut that might have been kept
    repeat: int = 0  # the master asks again what is on its way
    zombie: int = 0  # a deposed master begins a cut
    move: int = 0  # somebody wants a bucket on another server
    wish: int = 0  # another number of servers is wanted
    leave: int = 0  # a server has to go, and another process comes in its place once it is released
    warm: int = 0  # a copy goes ahead of a hand-over
    overtake: int = 0  # an order of a move arrives before one that was given before it
    late: int = 0  # an order of a deposed master arrives when its successor has been connected to


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A small job and what may happen to it."""

    positions: int = 2
    batches: tuple[int, ...] = (1, 1)  # positions a batch, by trainer: two may cut one shard differently
    epochs: int = 1
    trainers: int = 2
    servers: int = 2
    begin: int = 0  # servers when the job begins, if these are fewer
    buckets: int = 2
    copies: int = 1
    pipeline: int = 1  # batches a script has in hand at once
    quarantine_after: int = 9
    has_near_mark: bool = False  # the high-water mark is moved position by position, and the store may be slow with it
    faults: Faults = field(default_factory=Faults)
    is_slow: bool = False  # other things may happen between a pull and its push
    is_pruned: bool = True  # what can have no effect is dropped; False when a rule is left out and it might have one
    keeps_orphans: bool = False  # manifests that can never be adopted too, for the same reason
    keeps: bool = False  # survivors keep what they have after a loss (rule 30)
    loads_late: bool = False  # other things may happen while a server reads its part of a model
    is_hasty: bool = False  # moves and cuts do not wait for each other, as they may: for pace alone they do (rule 59)
    moves_in: CommitPhase | None = None  # a bucket is wanted elsewhere in this phase of a commit only: a smaller world
    is_strict: bool = True  # the cores' own checks count, and marks that differ from the ledger, before any checkpoint

    @property
    def is_moving(self) -> bool:
        """Buckets may change their servers; what a trainer knows of that may be old."""
        return bool(self.faults.move or self.faults.leave or self.faults.wish or self.copies > 1)

    @property
    def job(self) -> JobConfig:
        config = JobConfig(
            servers=self.begin or self.servers,
            max_servers=self.servers,
            bucket_count=self.buckets,
            copies=self.copies,
            quarantine_after=self.quarantine_after,
            after_loss=AfterLoss.KEEP if self.keeps else AfterLoss.ROLL_BACK,
        )
        return replace(config, high_water_batches=1) if self.has_near_mark else config

    @property
    def dataset(self) -> DatasetSpec:
        size = self.positions // self.epochs
        return DatasetSpec(name="samples", size=size, epochs=self.epochs, batch_size=max(self.batches))

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(name="counts", shape=(self.positions,)),) if self.servers else ()


def recorded(setting: Setting) -> Etcd:
    return masters.founded(DatasetRecord(dataset=setting.dataset, tables=setting.tables))
