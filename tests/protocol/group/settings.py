"""What is explored: a small group, and how often each fault may happen in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from master.api.checkpoints.manifest import Manifest
from master.api.identities import DatasetSpec, Lineage, ManifestId, Term
from master.api.messages.checkpoint_files import FileRecord
from master.api.messages.generations import StateId
from master.api.positions import EMPTY
from master.job.domain.durable_records import UNNAMED_ORIGIN, DatasetRecord, Durable
from master.job.domain.job_config import JobConfig
from trainer_sdk.group.core.copies import LEAST_SHARD_BYTES

LAYOUT = "layout"
FIRST = "first"
"""Manifest and file of the checkpoint that a job with `has_head` begins with: no step is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFaults:
    """How often each may happen."""

    kill: int = 0
    suspect: int = 0  # the master holds a living member for lost
    net: int = 0  # a collective fails although all are alive
    take_over: int = 0
    lose: int = 0  # the store's records are lost with their master; the checkpoint folder is there
    break_: int = 0  # of a member's stream, with what is on it
    restore: int = 0  # a user goes back to the first checkpoint
    drain: int = 0  # this and the next are no faults, but bounded
    restart: int = 0  # a process begins again under the name of one that died
    full: int = 0  # a copy cannot be written
    skip: int = 0  # the master decides to skip the last position of the job
    hang: int = 0  # one trainer's script does not come back from its step; its process lives and answers
    stop: int = 0  # one trainer's script ends training, and no other one's does
    differ: int = 0  # one trainer's script applies an update otherwise than the others do


FAULTS: Final = tuple(GroupFaults.__dataclass_fields__)
NO_FAULTS: Final = ("drain", "restart", "skip")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetting:
    """A small group and what may happen to it."""

    steps: int = 2
    batch: int = 2  # positions of a step, and the most trainers that a generation has
    start: int = 2  # trainers that are there when the job begins
    fresh: int = 0  # trainers that may come later
    copies: int = 1  # checkpoints before the last step that the master asks for, at the earliest after the first step
    wished: bool = False  # the first trainer's script asks for a checkpoint before the first step: a copy follows it
    shards: int = 1  # that a copy is large enough for
    begun: bool = False  # the first generation's sync is over, and what only adds interleavings happens at once
    overlap: bool = False  # after a take-over the old master goes on, and streams come to the new one one by one
    has_head: bool = False  # the job begins with a checkpoint of step 0
    has_hook: bool = False  # the script has a final hook
    quarantine_after: int = 9
    compares: bool = False  # replicas have digests
    hangs_for_good: bool = False  # a script that hangs never comes back
    stops_at: int = 0  # every trainer's script ends training once so many steps are complete; 0: none does
    faults: GroupFaults = field(default_factory=GroupFaults)

    @property
    def trainers(self) -> int:
        return self.start + self.fresh

    @property
    def dataset(self) -> DatasetSpec:
        return DatasetSpec(name="samples", size=self.batch * self.steps, epochs=1, batch_size=self.batch)

    @property
    def replica_bytes(self) -> int:
        return self.shards * LEAST_SHARD_BYTES

    @property
    def config(self) -> JobConfig:
        return JobConfig(servers=0, quarantine_after=self.quarantine_after, backoff_limit=99)

    @property
    def durable(self) -> Durable:
        """Of a job whose data set is recorded and which has not begun."""
        dataset = DatasetRecord(dataset=self.dataset, layout=LAYOUT)
        return Durable(dataset=dataset, head=self.first_checkpoint if self.has_head else None)

    @property
    def first_checkpoint(self) -> Manifest:
        lineage = Lineage(1)
        return Manifest(
            id=ManifestId(FIRST),
            parent=None,
            lineage=lineage,
            term=Term(1),
            data=EMPTY,
            quarantine=EMPTY,
            files=(FileRecord(name=FIRST, size_bytes=1, digest="d", lineage=lineage, marks=()),),
            dataset=self.dataset,
            tables=(),
            bucket_count=1,
            step=0,
            created_at_s=0.0,
            history=UNNAMED_ORIGIN.history,
            founded=lineage,
            state=StateId(lineage=lineage, generation=0, step=0),
        )
