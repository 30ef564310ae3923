"""One term of an operator after another: wait for the Lease, work behind the fence while it holds, and wait again.

    won -> work(fenced API) until the Lease is lost -> cancel the work, wait for its end -> campaign again

The work of each term is begun anew: a deposed leader keeps nothing in its memory (A9).  What ends by an error of its
own ends the process.  Not here: when the Lease is won and lost (`lease`), what the work is (`leading`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.decorators import FencedApi
from autoscaler.operator.leadership.lease import LeaseHolder

log = logging.getLogger(__name__)


async def run_terms(lease: LeaseHolder, api: Api, work: Callable[[Api], Awaitable[None]]) -> None:
    """Campaign, lead, campaign again, until cancelled; then give the Lease back.

    `work` gets an `api` that refuses every write once the term is over.  It has ended before the next term begins, and
    before the Lease is given back.  Raises what it raises.
    """
    async with asyncio.TaskGroup() as tasks:  # which ends the campaign last: what the work writes is still ours
        tasks.create_task(lease.run(), name="lease")
        while True:
            await lease.wait_won()
            await _run_term(lease, work(FencedApi(api, lease.may_write)))


async def _run_term(lease: LeaseHolder, work: Awaitable[None]) -> None:
    """Return when the term is lost, and its work has ended."""
    working = asyncio.ensure_future(work)
    lost = asyncio.create_task(lease.wait_lost(), name="wait for the end of the term")
    try:
        await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(working, lost)
    if lost.done() and not lost.cancelled():
        log.warning("lease %s is lost; nothing is written from now on", lease.name)


async def _end(*tasks: asyncio.Future[None]) -> None:
    """Cancel and wait; what ended by an error of its own raises it."""
    for task in tasks:
        task.cancel()
    for end in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(end, Exception):
            raise end
