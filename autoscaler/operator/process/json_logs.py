"""Log lines as JSON, one object a line: when, how grave, where from, what."""

from __future__ import annotations

import json
import logging
from typing import Final

from autoscaler.operator.leadership.lease import to_micro_time
from master.api.host.log_lines import escape_controls

_QUIET: Final = ("kopf", "aiohttp.access")
"""Libraries that tell what they do at INFO."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        line = {
            "time": to_micro_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": escape_controls(record.getMessage()),
        }
        if record.exc_info:
            line["story"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logs(level: str) -> None:
    """Everything to standard error, from this level up."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("kopf._core.reactor.running").setLevel(
        logging.ERROR
    )  # it misses the signals that it must not have
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
