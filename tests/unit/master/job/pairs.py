"""Servers of a job whose buckets have two copies, as its master hears them: beside `driver` and `moving`."""

from __future__ import annotations

from dataclasses import dataclass

from master.api.messages.from_members import Activated, SkipAnswer
from master.api.messages.to_members import Activate, Forget, Restore, Skip
from master.api.positions import EMPTY, PositionSet
from master.job.domain.job_config import JobConfig
from master.job.domain.job_events import ReconnectWindowEnded, StreamBroken
from master.job.state import bucket_table
from tests.unit.master.job.driver import Driver, Marks, run_servers

PAIRED = JobConfig(servers=2, bucket_count=4, copies=2)
THREE = JobConfig(servers=3, bucket_count=6, copies=2)


@dataclass
class Paired(Marks):
    """`standby`: the buckets that it is the backup of."""

    standby: PositionSet = EMPTY

    def restart(self) -> list:
        self.standby = EMPTY
        return super().restart()

    def answer(self, said):
        match said:
            case Restore() if said.incarnation == self.key.incarnation and said.lineage > self.lineage:
                self.standby = said.standby
            case Activate(is_backup=True) if said.lineage == self.lineage:
                self.buckets, self.standby = self.buckets - said.buckets, self.standby | said.buckets
                return Activated(lineage=said.lineage, buckets=said.buckets, version=said.version, is_backup=True)
            case Activate() | Forget() if said.lineage == self.lineage:
                self.standby -= said.buckets
            case Skip(of_backups=True) if said.lineage == self.lineage:
                self.skipped |= said.positions
                return SkipAnswer(
                    lineage=self.lineage,
                    positions=said.positions,
                    skipped=self.standby,
                    applied=EMPTY,
                    of_backups=True,
                )
        return super().answer(said)


def paired(config: JobConfig = PAIRED) -> tuple[Driver, list[Marks]]:
    """A job that serves, whose buckets all have two copies, and nobody training yet."""
    driver = Driver(config).start()
    driver.trainer("t0")
    servers: list[Marks] = [Paired(driver, ordinal) for ordinal in range(config.servers)]
    for server in servers:
        server.register()
    run_servers(driver, servers)
    driver.trainer("t0", declares=None)
    return driver, servers


def lose(driver: Driver, servers: list[Marks], *ordinals: int) -> list[Marks]:
    """These end, and nobody comes in their place; those that are left."""
    for ordinal in ordinals:
        driver.feed(StreamBroken(member=next(one.key for one in servers if one.ordinal == ordinal)))
        driver.fire(ReconnectWindowEnded)
    left = [one for one in servers if one.ordinal not in ordinals]
    run_servers(driver, left)
    return left


def single_copies(driver: Driver) -> int:
    assert driver.state.table is not None
    return bucket_table.single_copies(driver.state.table)


def backups(driver: Driver) -> list[str]:
    """By bucket the name of the server that has its second copy; empty: none has."""
    now = driver.state.table
    assert now is not None
    found = (bucket_table.backup_of(now, bucket) for bucket in range(len(now.route.owner)))
    return [key.name if key else "" for key in found]
