"""Checks that with two copies of every bucket the loss of one server causes no roll-back (rules 61, 62).

A loss is checked only where the protocol promises it: when the server is hit, the store names two copies of every
bucket on processes that run, and no other server is hit or ends unreleased until second copies are restored or the
resize is over.  Master, trainers and etcd may be hit at the same time.  The lineage must stay what it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.chaos.moves.etcd_oracle import EtcdOracle, StoredPlacement
from tests.chaos.moves.fault_matrix import StepFault
from tests.chaos.moves.processes import JobProcesses
from tests.chaos.moves.resizes import ServerResize
from tests.harness.faults import LandedFault

AWAKE_FOR_S = 1.0  # after a pause: by then the store has what the master concluded from it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementBefore:
    """The placement before a fault.  `is_whole`: every bucket has two copies, and their holders run."""

    placement: StoredPlacement | None
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    lineage: int
    hits: int  # of servers, as long as it holds
    is_loss: bool


class LossChecks:
    """Losses of one job; `begin` and `end` surround a resize, `observe` and `handle_fault` a fault."""

    def __init__(self, processes: JobProcesses, oracle: EtcdOracle) -> None:
        self._processes = processes
        self._oracle = oracle
        self._promise: _Promise | None = None
        self._hits = 0  # servers hit, as far as faults account for them
        self._is_asked = False
        self._made_good = 0
        self._problems: list[str] = []

    async def begin(self, resize: ServerResize) -> None:
        """A resize begins.  With one server there is one copy, whatever the job asks for."""
        self._made_good, self._problems, self._promise = 0, [], None
        self._hits = self._processes.servers_hit
        self._is_asked = self._processes.shape.kind.copies > 1 and resize.fewest > 1
        before = await self.observe()
        if before.placement is not None and before.is_whole:
            self._promise = _Promise(lineage=before.placement.lineage, hits=self._hits, is_loss=False)

    async def observe(self) -> PlacementBefore:
        """Reads the placement just before a fault."""
        self._is_asked = self._is_asked and self._processes.servers_hit == self._hits  # or another one falls just now
        placement = await self._oracle.read() if self._processes.shape.kind.copies > 1 else None
        self._check(placement)
        is_awake = time.monotonic() > self._processes.awake_since_s + AWAKE_FOR_S
        is_whole = (
            placement is not None
            and not placement.single_copies
            and is_awake
            and placement.holders <= self._processes.living_servers()
        )
        return PlacementBefore(placement=placement, is_whole=is_whole)

    async def handle_fault(self, landed: LandedFault[StepFault] | None, before: PlacementBefore) -> None:
        """A fault has landed, or not.  A bucket that has lost its backup since `observe` may be lost."""
        if landed is None or not landed.servers:
            return
        self._hits += len(landed.servers)
        self._settle()
        after = await self._oracle.read() if before.is_whole else None
        if before.placement is None or after is None or after.sole & landed.servers or len(landed.servers) > 1:
            return
        if self._is_asked and self._processes.servers_hit == self._hits:
            self._promise = _Promise(lineage=before.placement.lineage, hits=self._hits, is_loss=True)

    async def end(self) -> tuple[int, list[str]]:
        """The number of losses without a roll-back, and the problems."""
        if not self._is_asked:
            self._promise = None
        self._check(await self._oracle.read() if self._promise is not None else None)
        self._settle()
        return self._made_good, self._problems

    def _check(self, placement: StoredPlacement | None) -> None:
        """Compares the lineage with the promise, unless another server was hit."""
        promise = self._promise
        if promise is None or placement is None:
            return
        if self._processes.servers_hit != promise.hits:
            self._promise = None
            return
        if placement.lineage != promise.lineage:
            told = "one server was lost while every bucket had two copies" if promise.is_loss else "no server was lost"
            self._problems.append(f"{told}, and the lineage rose from {promise.lineage} to {placement.lineage}")
            self._promise = None

    def _settle(self) -> None:
        if self._promise is not None and self._promise.is_loss:
            self._made_good += 1
        self._promise = None
