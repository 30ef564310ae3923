"""Resizes of a job's servers: another count, one server replaced, a count that changes at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain import Role
from tests.chaos.moves.process import JobProcess
from tests.chaos.moves.processes import JobProcesses

SIZES = {1: (1, 2, 2, 3, 3, 4), 2: (1, 2, 3, 3, 3, 4)}  # by copies of a bucket: with one server it has one
REPLACEMENTS = 0.2
CHANGES_OF_MIND = 0.1
BY_SIGNAL = 0.5
OTHER_TRAINERS = 0.25


class ResizeKind(StrEnum):
    GROW = "grow"
    SHRINK = "shrink"
    REPLACE = "leave and come back"
    CHANGED = "two wishes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResize:
    """One resize.  `first` is a count that is replaced at once; `leaver` is the server that has to go."""

    kind: ResizeKind
    before: int
    count: int
    trainers: int
    first: int | None = None
    leaver: JobProcess | None = None
    by_signal: bool = False

    def __str__(self) -> str:
        told = f"{self.kind} {self.before} -> {self.count}"
        return told + (f" by way of {self.first}" if self.first else "") + (" by signal" if self.by_signal else "")

    def begin(self, processes: JobProcesses) -> None:
        processes.leave_by_signal = self.by_signal
        processes.trainers_wanted = self.trainers
        processes.servers_wanted = self.first or self.count
        if self.leaver is not None and self.leaver.is_running:
            processes.terminate(self.leaver)

    def change_mind(self, processes: JobProcesses) -> None:
        """The final count takes the place of the first."""
        processes.servers_wanted = self.count

    def is_done(self, processes: JobProcesses) -> bool:
        """True if the wanted processes run and the others have gone."""
        ordinals = [
            a.ordinal
            for a in processes.processes.values()
            if a.role is Role.SERVER and a.is_running and not a.is_leaving
        ]
        leaving = any(a.role is Role.SERVER and a.is_running and a.is_leaving for a in processes.processes.values())
        return not leaving and sorted(ordinals) == list(range(self.count))

    @property
    def fewest(self) -> int:
        """The lowest count that is wanted at any time of it."""
        return min(self.before, self.count, self.first or self.count)

    def is_source(self, server: JobProcess) -> bool:
        """True if this server gives buckets away; otherwise it takes them."""
        if self.leaver is not None:
            return server.pid == self.leaver.pid
        return server.ordinal >= self.count if self.count < self.before else server.ordinal < self.before


def resize_to(count: int, *, by_signal: bool = False) -> Callable[[JobProcesses], ServerResize]:
    """A resize to this count."""

    def order(processes: JobProcesses) -> ServerResize:
        before = processes.servers_wanted
        kind = ResizeKind.GROW if count > before else ResizeKind.SHRINK
        return ServerResize(
            kind=kind, before=before, count=count, trainers=processes.trainers_wanted, by_signal=by_signal
        )

    return order


def replace_server(ordinal: int) -> Callable[[JobProcesses], ServerResize]:
    """This server leaves, and another process with its ordinal comes."""

    def order(processes: JobProcesses) -> ServerResize:
        count = processes.servers_wanted
        leaver = processes.processes[f"{Role.SERVER}-{ordinal}"]
        return ServerResize(
            kind=ResizeKind.REPLACE, before=count, count=count, trainers=processes.trainers_wanted, leaver=leaver
        )

    return order


class RandomResizes:
    """Draws the next resize."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def next(self, processes: JobProcesses) -> ServerResize:
        rng, before = self._rng, processes.servers_wanted
        trainers = rng.randint(1, 3) if rng.random() < OTHER_TRAINERS else processes.trainers_wanted
        by_signal = rng.random() < BY_SIGNAL
        servers = processes.staying(Role.SERVER)
        if before > 1 and servers and rng.random() < REPLACEMENTS:
            leaver = rng.choice(servers)
            return ServerResize(
                kind=ResizeKind.REPLACE, before=before, count=before, trainers=trainers, leaver=leaver, by_signal=True
            )
        sizes = SIZES[processes.shape.kind.copies]
        count = rng.choice([size for size in sizes if size != before])
        kind = ResizeKind.GROW if count > before else ResizeKind.SHRINK
        first = None
        if rng.random() < CHANGES_OF_MIND:
            kind, first = ResizeKind.CHANGED, rng.choice([size for size in sizes if size not in {before, count}])
        return ServerResize(
            kind=kind,
            before=before,
            count=count,
            first=first,
            trainers=trainers,
            by_signal=by_signal and count < before,
        )
