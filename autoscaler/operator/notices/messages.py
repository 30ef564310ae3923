"""Bodies of notices: plain JSON, what the webhooks of Slack and Teams read, and mail.  Pure.

Names and messages come from users, so each form is escaped in its own way, and all texts are bounded.  A link leads to
the page of the object, where its owner's rights decide what may be done (ADR 0272).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from enum import StrEnum
from typing import Any, Final, assert_never
from urllib.parse import quote

from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.operator.notices.due_notices import NoticeKind, Occasion
from master.api.host.log_lines import escape_controls

LONGEST_TEXT: Final = 1000
LONGEST_SUBJECT: Final = 200
VERSION: Final = 1


class NoticeFormat(StrEnum):
    """Form of a notice's body."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"


def make_body(notice: Occasion, form: NoticeFormat, *, page: str = "") -> dict[str, Any]:
    """Return the body to send, as JSON's types.  `page`: address of the page, for a link; empty: there is none."""
    title, detail, link = _title(notice), _bounded(notice.message), make_link(notice, page)
    match form:
        case NoticeFormat.JSON:
            body = {
                "version": VERSION,
                "kind": notice.kind.value,
                "key": notice.key,
                "namespace": notice.namespace,
                "name": notice.name,
                "since": to_time(notice.since_unix_s),
                "reason": notice.reason,
                "title": title,
                "message": detail,
                "whatToDo": _what_to_do(notice),
            }
            return body | ({"page": link} if link else {})
        case NoticeFormat.SLACK:
            lines = (f"*{_for_slack(title)}*", _for_slack(detail), f"`{_for_slack(_what_to_do(notice))}`", link)
            return {"text": "\n".join(filter(None, lines))}
        case NoticeFormat.TEAMS:
            texts: tuple[tuple[str, dict[str, str]], ...] = (
                (title, {"weight": "Bolder"}),
                (detail, {}),
                (_what_to_do(notice), {"fontType": "Monospace"}),
            )
            blocks = [
                {"type": "TextBlock", "wrap": True, "text": _for_teams(one), **more} for one, more in texts if one
            ]
            card: dict[str, Any] = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
            if link:
                card["actions"] = [{"type": "Action.OpenUrl", "title": _LINK_WORDS[notice.kind], "url": link}]
            return {
                "type": "message",
                "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}],
            }
        case _:
            assert_never(form)


def make_mail(notice: Occasion, *, sender: str, receivers: Sequence[str], page: str = "") -> EmailMessage:
    """Return the message to send.  Its Message-ID is the same for the same occasion, so that a second one is known.

    Its date is that of the occasion.  `sender` and `receivers`: checked addresses.
    """
    message = EmailMessage(policy=SMTP)
    title, link = _encodable(_title(notice)), make_link(notice, page)
    message["Subject"] = title if len(title) <= LONGEST_SUBJECT else f"{title[: LONGEST_SUBJECT - 4]} ..."
    message["From"], message["To"] = sender, ", ".join(receivers)
    message["Date"] = format_datetime(datetime.fromtimestamp(notice.due_unix_s, UTC))
    digest = hashlib.sha256(notice.key.encode(errors="replace")).hexdigest()[:32]
    message["Message-ID"] = f"<{digest}@{sender.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # no absent receiver's machine answers it (RFC 3834)
    linked = f"{_LINK_WORDS[notice.kind]}: {link}" if link else ""
    paragraphs = (title, _encodable(_bounded(notice.message)), _encodable(_what_to_do(notice)), linked)
    message.set_content("\n\n".join(filter(None, paragraphs)) + "\n", cte="quoted-printable")
    return message


def make_link(notice: Occasion, page: str) -> str:
    """Return the address of the object on the page; empty without a page."""
    if not page:
        return ""
    kind = "pods" if notice.kind is NoticeKind.GPUS_GIVEN_BACK else "jobs"
    return f"{page}/{kind}/{quote(notice.namespace, safe='')}/{quote(notice.name, safe='')}"


_LINK_WORDS: Final = {
    NoticeKind.JOB_FAILED: "Open the job",
    NoticeKind.JOB_WAITS: "Open the job",
    NoticeKind.GPUS_GIVEN_BACK: "Keep it",
}


def _title(notice: Occasion) -> str:
    who = f"{notice.namespace}/{notice.name}"
    reason = f": {notice.reason}" if notice.reason else ""
    match notice.kind:
        case NoticeKind.JOB_FAILED:
            title = f"Job {who} has failed{reason}"
        case NoticeKind.JOB_WAITS:
            title = f"Job {who} has waited to start since {to_time(notice.since_unix_s)}{reason}"
        case NoticeKind.GPUS_GIVEN_BACK:
            title = f"Pod {who} is about to give back unused GPUs"
        case _:
            assert_never(notice.kind)
    return _bounded(title)


def _what_to_do(notice: Occasion) -> str:
    match notice.kind:
        case NoticeKind.JOB_FAILED:
            return f"edl describe tj/{notice.name} -n {notice.namespace}"
        case NoticeKind.JOB_WAITS:
            return f"edl why tj/{notice.name} -n {notice.namespace}"
        case NoticeKind.GPUS_GIVEN_BACK:
            return f"edl keep {notice.name} -n {notice.namespace} --for 2h"
        case _:
            assert_never(notice.kind)


def _bounded(words: str) -> str:
    shown = escape_controls(words.replace("\n", " "))
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[: LONGEST_TEXT - 4]} ..."


def _for_slack(words: str) -> str:
    """Slack reads <...> as links and mentions, which a job's name or message must not make."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _for_teams(words: str) -> str:
    """A TextBlock reads Markdown: a link needs brackets."""
    return words.replace("[", "\\[").replace("]", "\\]")


def _encodable(words: str) -> str:
    """JSON may hold halves of surrogate pairs, which no mail can."""
    return words.encode(errors="replace").decode()
