"""Journal of a run: events, decisions and samples as JSON lines, and the newest events in memory.

Three files of the run folder are appended line by line without buffering: they can be read while the run goes on and
after any end of it.  Times `t_s` are seconds since the start of the run.  A full disk costs lines, never the run.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.domain import JobName
from autoscaler.fault_isolation import JobError
from autoscaler.fault_log import FaultLog

log = logging.getLogger(__name__)

DECIDED: Final = "Decided"
"""Kind of an event that is a decision of the planner."""

_EVENTS_AT_HAND: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Event of a run.  `object` is TYPE/NAME; `number` counts from 1."""

    number: int
    t_s: float
    kind: str
    object: str
    reason: str
    message: str


class RunJournal:
    """Journal of one run.  A context: its files are open inside."""

    def __init__(self, folder: RunFolder, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started_at_s = clock()
        self._paths = (folder.events, folder.decisions, folder.samples)
        self._files: dict[Path, BinaryIO] = {}
        self._torn: set[Path] = set()
        self.folder = folder
        self._count = 0
        self.events: deque[RunEvent] = deque(maxlen=_EVENTS_AT_HAND)
        self.on_event: list[Callable[[RunEvent], None]] = []

    def __enter__(self) -> Self:
        self._files = {path: path.open("ab", buffering=0) for path in self._paths}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def elapsed_s(self, at_s: float | None = None) -> float:
        """Seconds since the start of the run, of an instant of the cluster's clock or now."""
        return round((self._clock() if at_s is None else at_s) - self._started_at_s, 3)

    def record_event(self, kind: str, target: str, reason: str, message: str = "") -> None:
        """Write an event about TYPE/NAME and pass it to every watcher."""
        self._count += 1
        event = RunEvent(
            number=self._count, t_s=self.elapsed_s(), kind=kind, object=target, reason=reason, message=message
        )
        self.events.append(event)
        self._write(self.folder.events, asdict(event))
        for watcher in tuple(self.on_event):
            watcher(event)

    def record_decision(self, decision: Mapping[str, Any]) -> None:
        self._write(self.folder.decisions, {"t_s": self.elapsed_s(), **decision})

    def record_sample(self, sample: Mapping[str, Any]) -> None:
        self._write(self.folder.samples, {"t_s": self.elapsed_s(), **sample})

    def _write(self, path: Path, line: Mapping[str, Any]) -> None:
        file = self._files.get(path)
        if file is None:
            return  # the run is over; what still happens is the end of its pods
        text = json.dumps(line, default=str, allow_nan=False).encode() + b"\n"
        try:
            written = file.write(b"\n" + text if path in self._torn else text)
        except OSError as error:
            self._tear(path, str(error))
            return
        if written < len(text):
            self._tear(path, "only a part of a line was written")
        else:
            self._torn.discard(path)

    def _tear(self, path: Path, why: str) -> None:
        """Mark the file, so that the next line that can be written begins on a line of its own."""
        if path not in self._torn:
            log.warning("%s: %s; the run goes on, lines are missing there", path, why)
        self._torn.add(path)


class RecordedErrors(FaultLog):
    """Fault log that also writes an event of the job or pod that a fault of EDL concerns (A11)."""

    def __init__(self, recorder: RunJournal) -> None:
        self._recorder = recorder

    def handle_failure(self, job: JobName, failure: JobError, error: Exception, *, has_changed: bool) -> None:
        """See `fault_isolation.FaultListener`."""
        super().handle_failure(job, failure, error, has_changed=has_changed)
        if has_changed:
            target = job.removeprefix("/") if "/" in job else f"tj/{job}"
            message = f"EDL fails at a step of it and tries again; others go on ({failure.task}: {failure.problem})"
            self._recorder.record_event("Failed", target, "InternalError", message)
