"""Keys of a job's durable values, all under `/edl/v1/jobs/<job>/` (M6: few keys, small values)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NewType

from master.errors import InvalidSettingError

Key = NewType("Key", str)

JOB_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The keys of one job.  `job` is a DNS subdomain (`digits`, or `team-a.digits` for a namespace and a name)."""

    job: str

    def __post_init__(self) -> None:
        if not JOB_NAME.fullmatch(self.job):
            raise InvalidSettingError(
                "EDL_JOB",
                f"{self.job!r} is not a job name",
                hint="Lower-case letters, digits, '-' and '.', as in Kubernetes",
            )

    @property
    def prefix(self) -> Key:
        return Key(f"/edl/v1/jobs/{self.job}/")

    def named(self, name: str) -> Key:
        return Key(f"{self.prefix}{name}")

    @property
    def known(self) -> tuple[Key, ...]:
        """All keys that a master writes, in etcd's order."""
        return tuple(sorted((
            self.leader, self.lineage, self.dataset, self.high_water, self.trainers, self.head, self.route, self.start,
            self.servers, self.intents, self.backups, self.refounding, self.generation, self.final_save,
        )))  # fmt: skip

    @property
    def leader(self) -> Key:
        """Bound to the leader's lease; its create revision is the term.  Written by campaigns only."""
        return self.named("leader")

    @property
    def lineage(self) -> Key:
        """Number, base manifest, quarantine (rules 2, 26)."""
        return self.named("lineage")

    @property
    def dataset(self) -> Key:
        """Declaration recorded by the first Declare."""
        return self.named("dataset")

    @property
    def high_water(self) -> Key:
        """Positions below may have been granted; reserved in blocks (rule 18)."""
        return self.named("high-water")

    @property
    def trainers(self) -> Key:
        """Trainers that may hold leases below the high-water mark; changes with it only, so one comparison suffices."""
        return self.named("trainers")

    @property
    def head(self) -> Key:
        """Id of the newest committed manifest (rule 23)."""
        return self.named("head")

    @property
    def route(self) -> Key:
        """The owner of each bucket (rule 37)."""
        return self.named("route")

    @property
    def start(self) -> Key:
        """The start that was last requested (`spec.checkpoint.start`); absent: no term has read it yet."""
        return self.named("start")

    @property
    def refounding(self) -> Key:
        """Last refounding: its checkpoint, and whether the folder has been adjusted (ADR 0189)."""
        return self.named("refounding")

    @property
    def servers(self) -> Key:
        """The number of servers that the cluster side wants; absent: as many as the job began with."""
        return self.named("servers")

    @property
    def intents(self) -> Key:
        """Intents: buckets that are to move (rule 40); they change with the route alone, which is compared for both."""
        return self.named("intents")

    @property
    def backups(self) -> Key:
        """The servers with second copies (rule 61); absent: there are none.  Changes with the route only."""
        return self.named("backups")

    @property
    def generation(self) -> Key:
        """The generation of a group (rule 64); it stays when the job starts anew, so that no number is used twice."""
        return self.named("generation")

    @property
    def final_save(self) -> Key:
        """Id of the manifest after which a group's final hook has run (rule 96); absent: none has."""
        return self.named("final-save")
