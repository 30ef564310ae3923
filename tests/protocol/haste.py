"""Moves and cuts without the courtesy between them: truth must not rest on it, so it is explored without, too.

The product has no switch for it: `hurried` patches the two places where the master waits for pace alone (rule 59).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest.mock import patch

from master.job.commit import commit_protocol
from master.job.moves import move_admission
from tests.protocol.explore import Limits, Report, explore
from tests.protocol.model import JobModel
from tests.protocol.settings import Setting

PATCHES: Final = (
    (commit_protocol, "is_quiet", lambda state: True),
    (move_admission, "is_paused_for_commit", lambda state: False),
)


@contextmanager
def hurried(setting: Setting) -> Iterator[None]:
    """While a hasty job is explored."""
    with ExitStack() as stack:
        for where, name, replacement in PATCHES if setting.is_hasty else ():
            stack.enter_context(patch.object(where, name, replacement))
        yield


def explore_job(setting: Setting, limits: Limits) -> Report:
    with hurried(setting):
        return explore(JobModel(setting), limits)
