"""Queue of notices to one channel: bounded, in order, a deadline for each attempt, few attempts for each notice.

A channel is a webhook (`webhook`) or a mail server (`mail`).  Each has a queue of its own, so that one that hangs
keeps no notice from the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from autoscaler.operator.notices.due_notices import Occasion

MOST_QUEUED: Final = 100
ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 1.0  # doubles with each attempt
ATTEMPT_BUDGET_S: Final = 10.0

log = logging.getLogger(__name__)


class DeliveryError(Exception):
    """The channel did not take a notice.  The message quotes no secret.  `may_retry`: it may take it later."""

    def __init__(self, message: str, *, may_retry: bool) -> None:
        super().__init__(message)
        self.may_retry = may_retry


class Channel(Protocol):
    """A way to people.  `receiver`: who takes notices there, for log lines."""

    receiver: str

    async def send(self, notice: Occasion) -> None:
        """Return once the receiver has taken the notice.  May be cancelled.  Raises DeliveryError."""
        ...


class NoticeQueue:
    """Sends what is offered, in order, while `run` runs.  `dropped` counts notices that the channel did not get."""

    def __init__(self, channel: Channel, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.dropped = 0
        self.sent = 0
        self._channel = channel
        self._sleep = sleep
        self._queue: deque[Occasion] = deque()
        self._has_some = asyncio.Event()

    def offer(self, notice: Occasion) -> bool:
        """Queue a notice; False if the queue is full, and the notice is dropped."""
        if len(self._queue) >= MOST_QUEUED:
            self._drop(notice, "too many notices wait")
            return False
        self._queue.append(notice)
        self._has_some.set()
        return True

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._has_some.wait()
            while self._queue:
                notice = self._queue.popleft()
                try:
                    await self._deliver(notice)
                except Exception as error:  # noqa: BLE001 - a notice must not end the leader's term
                    self._drop(notice, f"it cannot be sent ({type(error).__name__})")  # its message may quote a secret
            self._has_some.clear()

    async def _deliver(self, notice: Occasion) -> None:
        """Try a few times: the receiver may be busy.  What it refuses is not sent again."""
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
            try:
                async with asyncio.timeout(ATTEMPT_BUDGET_S):
                    await self._channel.send(notice)
            except TimeoutError:
                problem = f"no answer within {ATTEMPT_BUDGET_S:g} s"
                continue
            except DeliveryError as error:
                problem = str(error)
                if error.may_retry:
                    continue
                break
            self.sent += 1
            return
        self._drop(notice, f"{self._channel.receiver} takes it not: {problem}")

    def _drop(self, notice: Occasion, problem: str) -> None:
        self.dropped += 1
        log.warning("notice %s of %s/%s is lost: %s", notice.kind.value, notice.namespace, notice.name, problem)
