"""A call that may never return, made in a thread that can be given up.

A driver may take half a minute to answer, or for ever, and a thread in the kernel cannot be ended.  So at most one
call is outstanding: while a call that was given up has not returned, the next one is refused at once, and threads do
not pile up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


class CallLateError(Exception):
    """The call has not returned within its deadline, or the one before still has not returned."""


@dataclass(slots=True)
class _Call(Generic[T]):
    """Filled in by the call's thread; only read once `ended` is set."""

    ended: threading.Event = field(default_factory=threading.Event)
    result: list[T] = field(default_factory=list)
    error: BaseException | None = None


class DeadlineCaller:
    """Makes one call at a time.  Not for use from several threads."""

    def __init__(self) -> None:
        self._outstanding: threading.Event | None = None

    def call(self, function: Callable[[], T], *, deadline_s: float) -> T:
        """Return what `function` returns and raise what it raises.  Raises CallLateError; a late result is dropped."""
        if self._outstanding is not None and not self._outstanding.is_set():
            raise CallLateError("an earlier call has still not returned")
        call: _Call[T] = _Call()
        self._outstanding = call.ended
        threading.Thread(target=_run, args=(function, call), name="gpu-driver", daemon=True).start()
        if not call.ended.wait(deadline_s):
            raise CallLateError(f"the call has not returned within {deadline_s:g} s")
        if call.error is not None:
            raise call.error
        return call.result[0]


def _run(function: Callable[[], T], call: _Call[T]) -> None:
    try:
        call.result.append(function())
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        call.error = error
    finally:
        call.ended.set()
