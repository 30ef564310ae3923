"""Ownership of a session: one process, one thread, one session of a name at a time; other use raises at once.

A forked worker has no stream to speak for its parent, and a second thread would take batches whose gradients belong to
the first.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from trainer_sdk.errors import UsageError

JobKey = tuple[str, str]  # address of its master, name

_open: Final[set[tuple[int, str]]] = set()
"""Sessions that are open, by process (a fork inherits this set, not the sessions) and name of the member."""

_openers: Final[set[int]] = set()
"""Processes that have opened a session, which may be closed by now."""

_ended: Final[set[int]] = set()
"""Processes in which a session has seen the end of its job's data."""

_trained: Final[set[tuple[int, JobKey]]] = set()
"""Groups' jobs whose end a session has seen, by process."""

_AFTER_FORK: Final = (
    "used after fork(): a session stays with the process that opened it. Worker processes that load data iterate over "
    "record numbers, not over the session's data set: loop over the data set in this script's own process, and give "
    "each batch.indices to the workers, as batch_sampler of a DataLoader (docs/guide.md, worker processes). Start "
    "workers before the first batch"
)


def has_opened_session() -> bool:
    """True if this process has opened a session so far."""
    return os.getpid() in _openers


def has_seen_end() -> bool:
    """True if a session of this process has seen that the whole job is trained and committed."""
    return os.getpid() in _ended


class SessionOwner:
    """The process and thread that opened a session under this name.

    Raises UsageError when one is open already, or when `job` is a group's that this process has seen trained.  `job` is
    None for a script that runs alone: each of its sessions has a master of its own.
    """

    def __init__(self, name: str, job: JobKey | None) -> None:
        self._process = os.getpid()
        self._thread = threading.get_ident()
        self._key = self._process, name
        if self._key in _open:
            raise UsageError(f"a second session as {name}: use the one that is open, or close it first")
        self._job = job
        if job is not None and (self._process, job) in _trained:
            raise UsageError(
                f"a second session with job {job[1]}, whose training is over: its loop would be empty, and its model "
                "would be given the weights of the first one. A job has one session in a script: give both models to "
                "one replicate(session, ...), or start a job for each"
            )
        _open.add(self._key)
        _openers.add(self._process)
        self.is_closed = False

    @property
    def is_this_process(self) -> bool:
        return os.getpid() == self._process

    def check(self) -> None:
        """Raises UsageError when the session is closed, or this is not its process and thread."""
        if not self.is_this_process:
            raise UsageError(_AFTER_FORK)
        if self.is_closed:
            raise UsageError("the session is closed: everything belongs inside `with edl.open() as session:`")
        if threading.get_ident() != self._thread:
            raise UsageError("used from a second thread: a session belongs to the thread that opened it")

    def note_end(self, *, is_group: bool) -> None:
        """The session has seen the end of the job's data."""
        _ended.add(self._process)
        if is_group and self._job is not None:
            _trained.add((self._process, self._job))

    def close(self) -> None:
        self.is_closed = True
        _open.discard(self._key)
