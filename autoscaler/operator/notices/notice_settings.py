"""Settings of notices: where they go, in which form, and when they are due.

| variable | meaning |
|---|---|
| EDL_NOTICES_ADDRESS_FILE | file with the webhook's address, which is a secret; absent: no webhook |
| EDL_NOTICES_FORMAT | json (the default), slack or teams |
| EDL_NOTICES_WAIT_S | how long a job waits before that is told; 1800 |
| EDL_NOTICES_PAGE | address of the page, for links to it, as in https://edl.example; absent: no links |
| EDL_NOTICES_MAIL_... | mail (`mail_settings`) |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from autoscaler.errors import InvalidSpecError
from autoscaler.operator.notices.due_notices import NoticeRule
from autoscaler.operator.notices.mail_settings import MailSettings, read_mail_settings
from autoscaler.operator.notices.messages import NoticeFormat

LONGEST_PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Settings of a webhook.  `address_file` has its address, and nothing else."""

    address_file: Path
    form: NoticeFormat = NoticeFormat.JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Settings of notices.  `webhook`, `mail`: None: none goes there.  `page`: its address, which ends in no slash."""

    webhook: WebhookSettings | None = None
    mail: MailSettings | None = None
    page: str = ""
    rule: NoticeRule = field(default_factory=NoticeRule)


def read_notice_settings(environ: Mapping[str, str]) -> NoticeSettings | None:
    """Return the settings; None: no notices.  Raises InvalidSpecError with the variable's name.

    The file is not read here: a Secret may come later, and each notice reads it anew.
    """
    webhook, mail = _read_webhook(environ), read_mail_settings(environ)
    if webhook is None and mail is None:
        return None
    wait = environ.get("EDL_NOTICES_WAIT_S") or "1800"
    if not (wait.isascii() and wait.isdigit() and 0 < len(wait) < 9):
        raise InvalidSpecError("EDL_NOTICES_WAIT_S", f"is {wait!r}", "whole seconds, as in 1800")
    page = _check_page(environ.get("EDL_NOTICES_PAGE", ""))
    return NoticeSettings(webhook=webhook, mail=mail, page=page, rule=NoticeRule(wait_s=float(wait)))


def _read_webhook(environ: Mapping[str, str]) -> WebhookSettings | None:
    file = environ.get("EDL_NOTICES_ADDRESS_FILE", "")
    if not file:
        return None
    form = environ.get("EDL_NOTICES_FORMAT") or "json"
    forms = [one.value for one in NoticeFormat]
    if form not in forms:
        raise InvalidSpecError("EDL_NOTICES_FORMAT", f"is {form!r}", ", ".join(forms))
    return WebhookSettings(address_file=Path(file), form=NoticeFormat(form))


def _check_page(written: str) -> str:
    """Return the address without slashes at its end: anybody who reads a notice may follow it, so it has no secret."""
    if not written:
        return ""
    try:
        parts = urlsplit(written)
        is_sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_sound = False
    is_plain = written.isascii() and written.isprintable() and not set(written) & set(" <>[]()|\"'`\\?#")
    if not is_sound or not is_plain or len(written) > LONGEST_PAGE:
        raise InvalidSpecError("EDL_NOTICES_PAGE", f"is {written!r}", "an address as in https://edl.example")
    return written.rstrip("/")
