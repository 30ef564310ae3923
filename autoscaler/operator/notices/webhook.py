"""Notices to one webhook.

The address is a secret, since whoever knows it can write to the channel.  It is read from its file for each notice, so
that a changed Secret counts at once, and it stands in no log line and no error: those of the HTTP client quote it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp

from autoscaler.operator.notices.due_notices import Occasion
from autoscaler.operator.notices.messages import make_body
from autoscaler.operator.notices.notice_queue import DeliveryError
from autoscaler.operator.notices.notice_settings import WebhookSettings

LONGEST_ADDRESS: Final = 4096

Post: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[int]]
"""Sends a body to an address, and returns the status of the answer.  Raises OSError, TimeoutError, AddressError."""


class AddressError(DeliveryError):
    """The address cannot be used; the message does not quote it.  Its Secret may come later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, may_retry=True)


class Webhook:
    """`Channel` over HTTP.  `page`: address of the page, for links to it; empty: none are sent."""

    receiver = "the webhook"

    def __init__(self, settings: WebhookSettings, *, page: str = "", post: Post | None = None) -> None:
        self._settings = settings
        self._page = page
        self._post = post or post_json

    async def send(self, notice: Occasion) -> None:
        """See `Channel`."""
        body = make_body(notice, self._settings.form, page=self._page)
        try:
            status = await self._post(read_address(self._settings.address_file), body)
        except (OSError, aiohttp.ClientError) as error:  # a TimeoutError is an OSError
            raise DeliveryError(f"it cannot be reached ({type(error).__name__})", may_retry=True) from None
        if not 200 <= status < 300:
            raise DeliveryError(f"it answers {status}", may_retry=status >= 500 or status in {408, 429})


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
