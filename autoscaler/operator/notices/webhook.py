"""Sending of notices to one webhook: a bounded queue, a deadline for each attempt, few attempts for each notice.

The address is a secret, since whoever knows it can write to the channel.  It is read from its file for each notice, so
that a changed Secret counts at once, and it stands in no log line and no error: those of the HTTP client quote it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp

from autoscaler.operator.notices.due_notices import Occasion
from autoscaler.operator.notices.messages import make_body
from autoscaler.operator.notices.notice_settings import NoticeSettings

MOST_QUEUED: Final = 100
ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 1.0  # doubles with each attempt
ATTEMPT_BUDGET_S: Final = 10.0
LONGEST_ADDRESS: Final = 4096

log = logging.getLogger(__name__)

Post: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[int]]
"""Sends a body to an address, and returns the status of the answer.  Raises OSError, TimeoutError, AddressError."""


class AddressError(Exception):
    """The address cannot be used; the message does not quote it."""


class Webhook:
    """Sends what is offered, in order, while `run` runs.  `dropped` counts notices that nobody will get."""

    def __init__(
        self,
        settings: NoticeSettings,
        *,
        post: Post | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.dropped = 0
        self.sent = 0
        self._settings = settings
        self._post = post or post_json
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
        body, problem = make_body(notice, self._settings.form), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
            try:
                async with asyncio.timeout(ATTEMPT_BUDGET_S):
                    status = await self._post(read_address(self._settings.address_file), body)
            except AddressError as error:
                problem = str(error)
                continue
            except (OSError, aiohttp.ClientError) as error:  # a TimeoutError is an OSError
                problem = f"it cannot be reached ({type(error).__name__})"
                continue
            if 200 <= status < 300:
                self.sent += 1
                return
            problem = f"it answers {status}"
            if status < 500 and status not in {408, 429}:
                break
        self._drop(notice, f"the webhook takes it not: {problem}")

    def _drop(self, notice: Occasion, problem: str) -> None:
        self.dropped += 1
        log.warning("notice %s of %s/%s is lost: %s", notice.kind.value, notice.namespace, notice.name, problem)


def read_address(file: Path) -> str:
    """Return the webhook's address.  Raises AddressError, without quoting it."""
    try:
        address = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AddressError(f"the file with its address cannot be read ({type(error).__name__})") from None
    if not address.startswith(("https://", "http://")) or len(address) > LONGEST_ADDRESS or len(address.split()) != 1:
        raise AddressError("the file with its address holds no https:// address")
    return address


async def post_json(address: str, body: dict[str, Any]) -> int:
    """`Post` over HTTP.  Follows no redirect: it would tell the notice to whoever the answer names.

    aiohttp says of an address that cannot be used InvalidURL or UnicodeError (labels of the host, a password that is
    not Latin-1), which are ValueErrors and quote it.
    """
    try:
        async with (
            aiohttp.ClientSession(trust_env=True, auto_decompress=False) as session,
            session.post(address, json=body, allow_redirects=False) as answer,
        ):
            return answer.status
    except ValueError:
        raise AddressError("the file with its address holds no valid address") from None
