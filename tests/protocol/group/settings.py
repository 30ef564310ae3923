"""What is explored: a small group, and how often each fault may happen in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from master.api.identities import DatasetSpec
from master.job.domain.durable_records import DatasetRecord, Durable
from master.job.domain.job_config import JobConfig

LAYOUT = "layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFaults:
    """How often each may happen."""

    kill: int = 0
    suspect: int = 0  # the master holds a living member for lost
    net: int = 0  # a collective fails although all are alive
    take_over: int = 0
    break_: int = 0  # of a member's stream, with what is on it
    drain: int = 0  # no fault, but a bounded number of them


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSetting:
    """A small group and what may happen to it: steps of two positions."""

    steps: int = 2
    start: int = 2  # trainers that are there when the job begins
    fresh: int = 0  # trainers that may come later
    copies: int = 1  # checkpoints before the last step
    faults: GroupFaults = field(default_factory=GroupFaults)

    @property
    def trainers(self) -> int:
        return self.start + self.fresh

    @property
    def dataset(self) -> DatasetSpec:
        return DatasetSpec(name="samples", size=2 * self.steps, epochs=1, batch_size=2)

    @property
    def config(self) -> JobConfig:
        return JobConfig(servers=0, quarantine_after=9, backoff_limit=99)

    @property
    def durable(self) -> Durable:
        """Of a job whose data set is recorded and which has not begun."""
        return Durable(dataset=DatasetRecord(dataset=self.dataset, layout=LAYOUT))
