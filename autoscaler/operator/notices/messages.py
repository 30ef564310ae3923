"""Bodies of notices: plain JSON, and what the webhooks of Slack and Teams read.  Pure.

Names and messages come from users, so each form is escaped in its own way, and all texts are bounded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, assert_never

from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.operator.notices.due_notices import NoticeKind, Occasion
from master.api.host.log_lines import escape_controls

LONGEST_TEXT: Final = 1000
VERSION: Final = 1


class NoticeFormat(StrEnum):
    """Form of a notice's body."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"


def make_body(notice: Occasion, form: NoticeFormat) -> dict[str, Any]:
    """Return the body to send, as JSON's types."""
    title, detail = _title(notice), _bounded(notice.message)
    match form:
        case NoticeFormat.JSON:
            return {
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
        case NoticeFormat.SLACK:
            lines = (f"*{_for_slack(title)}*", _for_slack(detail), f"`{_for_slack(_what_to_do(notice))}`")
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
            card = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
            return {
                "type": "message",
                "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}],
            }
        case _:
            assert_never(form)


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
