"""Whether this term may still act: the leadership's word, and what is done when the store cannot be asked.

The problem: a master that cannot renew its lease stops at the renew deadline, since another one may lead soon.  But
when the store is away for everybody nobody else can lead, and stopping would stop the training of a job that has only
this master.  So:

    the lease is gone, and the store says who leads now   -> the term is over, at once
    the store does not answer, the job has standbys       -> the term is over, at once (M5)
    the store does not answer, this is the only master    -> goes on granting, asks the store every second

Going on is safe: nothing is committed without the store, and truth rests on marks and fenced transactions, not on
leases (protocol rule 15).  At worst the work of those seconds is done again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from master.election import Reign
from master.errors import StoreUnavailableError
from master.store.port import Store

log: Final = logging.getLogger(__name__)

ASK_EVERY_S: Final = 1.0
ASK_TIMEOUT_S: Final = 1.0
GOES_ON_S: Final = 3.0  # after an ask that was not answered; above the two times before, so that acting has no gaps


class TermEndedError(Exception):
    """This term is over; the reason is for the log."""


class Mandate:
    """One reign's right to act.  `watch` runs beside the term."""

    def __init__(self, reign: Reign, store: Store, *, has_standbys: bool) -> None:
        self._reign = reign
        self._store = store
        self._has_standbys = has_standbys
        self._goes_on_until_s = 0.0
        self._over = ""
        self._news = asyncio.Event()

    def may_act(self) -> bool:
        """Ask right before each grant and answer: a pause may just have ended."""
        return not self._over and (self._reign.may_act() or time.monotonic() < self._goes_on_until_s)

    @property
    def is_cut_off(self) -> bool:
        """Acting without the store's word."""
        return not self._reign.may_act() and self.may_act()

    async def confirm(self) -> None:
        """Waits until this term may act again.  Raises TermEndedError when it never may."""
        while not self.may_act():
            if self._over:
                raise TermEndedError(self._over)
            self._news.clear()
            await self._news.wait()

    async def watch(self) -> None:
        """Until the term is over."""
        reason = await self._reign.ended()
        while not self._over:
            self._over = await self._judge(reason)
            self._news.set()
            if not self._over:
                await asyncio.sleep(ASK_EVERY_S)

    async def _judge(self, reason: str) -> str:
        """Why the term is over; empty when it goes on for a while."""
        if self._has_standbys:
            return reason
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                leader = await self._store.read_leader()
        except (StoreUnavailableError, TimeoutError):
            if not self._goes_on_until_s:
                log.warning("the store does not answer: going on without commits, as the only master of this job")
            self._goes_on_until_s = time.monotonic() + GOES_ON_S
            return ""
        if leader is not None and leader.term == self._reign.leadership.term:
            self._goes_on_until_s = time.monotonic() + GOES_ON_S
            return ""
        return f"{reason}; " + (f"term {leader.term} leads" if leader else "nobody leads")
