"""Settings of notices: where they go, in which form, and when they are due.

| variable | meaning |
|---|---|
| EDL_NOTICES_ADDRESS_FILE | file with the webhook's address, which is a secret; absent: no notices |
| EDL_NOTICES_FORMAT | json (the default), slack or teams |
| EDL_NOTICES_WAIT_S | how long a job waits before that is told; 1800 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.errors import InvalidSpecError
from autoscaler.operator.notices.due_notices import NoticeRule
from autoscaler.operator.notices.messages import NoticeFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Settings of notices.  `address_file` has the address of the webhook, and nothing else."""

    address_file: Path
    form: NoticeFormat = NoticeFormat.JSON
    rule: NoticeRule = field(default_factory=NoticeRule)


def read_notice_settings(environ: Mapping[str, str]) -> NoticeSettings | None:
    """Return the settings; None: no notices.  Raises InvalidSpecError with the variable's name.

    The file is not read here: a Secret may come later, and each notice reads it anew.
    """
    file = environ.get("EDL_NOTICES_ADDRESS_FILE", "")
    if not file:
        return None
    form, wait = environ.get("EDL_NOTICES_FORMAT") or "json", environ.get("EDL_NOTICES_WAIT_S") or "1800"
    forms = [one.value for one in NoticeFormat]
    if form not in forms:
        raise InvalidSpecError("EDL_NOTICES_FORMAT", f"is {form!r}", ", ".join(forms))
    if not (wait.isascii() and wait.isdigit() and 0 < len(wait) < 9):
        raise InvalidSpecError("EDL_NOTICES_WAIT_S", f"is {wait!r}", "whole seconds, as in 1800")
    return NoticeSettings(address_file=Path(file), form=NoticeFormat(form), rule=NoticeRule(wait_s=float(wait)))
