"""One rule left out of the real cores while a small job is explored, and whether that was found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

from master.api.messages.from_members import Installed
from master.job.commit import commit_protocol
from master.job.servers import server_handlers
from tests.protocol.explore import Limits, Report, Verdict
from tests.protocol.haste import explore_job
from tests.protocol.settings import Faults, Setting

Patches = tuple[tuple[object, str, object], ...]

ONE: Final = {"trainers": 1, "positions": 1, "buckets": 1}
MOVE: Final = Setting(**ONE, faults=Faults(move=1))
LATE: Final = Setting(**ONE, faults=Faults(move=1, deadline=1))


@dataclass(frozen=True, kw_only=True)
class Break:
    """`rule`: what is left out.  `patches`: (module or class, name, replacement)."""

    name: str
    rule: str
    patches: Patches
    setting: Setting
    limits: Limits = field(default_factory=lambda: Limits(states=150_000, seconds=1800))
    has_commits: bool = True  # False: none is ever begun, and no job comes to its END: only a violation counts
    is_long: bool = False  # minutes: for `python -m tests.protocol --breaks`, not for every test run

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            never = () if self.has_commits else ((commit_protocol, "advance", lambda turn: None),)
            for where, name, replacement in (*never, *self.patches):
                stack.enter_context(patch.object(where, name, replacement))
            yield

    def explore(self) -> Report:
        setting = replace(self.setting, is_pruned=False, is_strict=False)
        with self.applied():
            return explore_job(setting, replace(self.limits, has_end=self.has_commits))


def is_found(report: Report) -> bool:
    return report.verdict in (Verdict.VIOLATED, Verdict.STUCK)


def always(*_: Any, **__: Any) -> bool:
    return True


def on_installed(handler: Any) -> Any:
    """In place of what the master does with INSTALLED."""
    return (server_handlers, "HANDLERS", {**server_handlers.HANDLERS, Installed: handler})
