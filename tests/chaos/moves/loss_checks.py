"""Where buckets have two copies, the loss of one server takes nothing back (rules 61, 62): looked at loss by loss.

Asked only where the protocol promises it: as the server is struck, the store names two copies of every bucket, all of
them processes that live and run, and no other one is struck, or ends unreleased, until its loss is made good or the
resize is over.  Others may be struck at the same time: master, trainers, etcd.  The lineage must stay what it was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.chaos.moves.etcd_oracle import Book, Truth
from tests.chaos.moves.fault_matrix import Landed
from tests.chaos.moves.processes import Cast
from tests.chaos.moves.resizes import Order

AWAKE_FOR_S = 1.0  # of a server that was paused: what the master thought of it is in the store by then


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A blow.  `is_whole`: two copies of each bucket, and everybody who has one lives."""

    truth: Truth | None
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    lineage: int
    hits: int  # of servers, as long as it holds
    is_loss: bool


class Losses:
    """Of one job; `begin` and `end` around each resize, `look` and `note` around each blow."""

    def __init__(self, cast: Cast, book: Book) -> None:
        self._cast = cast
        self._book = book
        self._promise: _Promise | None = None
        self._hits = 0  # of servers, that we know of
        self._is_asked = False
        self._made_good = 0
        self._problems: list[str] = []

    async def begin(self, order: Order) -> None:
        """With one server there is one copy, whatever is asked for."""
        self._made_good, self._problems, self._promise = 0, [], None
        self._hits = self._cast.servers_hit
        self._is_asked = self._cast.shape.kind.copies > 1 and order.fewest > 1
        before = await self.look()
        if before.truth is not None and before.is_whole:
            self._promise = _Promise(lineage=before.truth.lineage, hits=self._hits, is_loss=False)

    async def look(self) -> Before:
        """Just before a blow."""
        self._is_asked = self._is_asked and self._cast.servers_hit == self._hits  # or another one falls just now
        truth = await self._book.read() if self._cast.shape.kind.copies > 1 else None
        self._check(truth)
        is_awake = time.monotonic() > self._cast.awake_since_s + AWAKE_FOR_S
        is_whole = truth is not None and not truth.alone and is_awake and truth.holders <= self._cast.living()
        return Before(truth=truth, is_whole=is_whole)

    async def note(self, landed: Landed | None, before: Before) -> None:
        """What came of the blow.  A bucket that has got alone between the look and the blow may be lost."""
        if landed is None or not landed.names:
            return
        self._hits += len(landed.names)
        self._settle()
        after = await self._book.read() if before.is_whole else None
        if before.truth is None or after is None or after.sole & landed.names or len(landed.names) > 1:
            return
        if self._is_asked and self._cast.servers_hit == self._hits:
            self._promise = _Promise(lineage=before.truth.lineage, hits=self._hits, is_loss=True)

    async def end(self) -> tuple[int, list[str]]:
        """How many losses were made good, and what is wrong."""
        if not self._is_asked:
            self._promise = None
        self._check(await self._book.read() if self._promise is not None else None)
        self._settle()
        return self._made_good, self._problems

    def _check(self, truth: Truth | None) -> None:
        """The promise, as long as nobody else was hit."""
        promise = self._promise
        if promise is None or truth is None:
            return
        if self._cast.servers_hit != promise.hits:
            self._promise = None
            return
        if truth.lineage != promise.lineage:
            told = "one server was lost while every bucket had two copies" if promise.is_loss else "no server was lost"
            self._problems.append(f"{told}, and the lineage rose from {promise.lineage} to {truth.lineage}")
            self._promise = None

    def _settle(self) -> None:
        if self._promise is not None and self._promise.is_loss:
            self._made_good += 1
        self._promise = None
