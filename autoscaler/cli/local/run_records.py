"""Logs, events and jobs in a run's folder: they are read while the run goes on, and after its end."""

from __future__ import annotations

import codecs
import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.run_files.run_folder import RunFolder

FOLLOW_EVERY_S: Final = 0.1
_CHUNK_BYTES: Final = 64 << 10


def read_log(path: Path, tail: int | None, folder: RunFolder | None) -> Iterator[str]:
    """Content of the log file; with a folder also what is appended, until its run ends.

    A file that has become shorter (`pod_logs`) is read again from its beginning.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    with path.open("rb") as log:
        if tail is not None:
            yield decode(b"".join(deque(log, maxlen=tail)))
        has_ended = folder is None
        while True:
            if chunk := log.read(_CHUNK_BYTES):
                yield decode(chunk)
            elif has_ended or folder is None:
                return
            elif path.stat().st_size < log.tell():
                log.seek(0)
            elif folder.is_live():
                time.sleep(FOLLOW_EVERY_S)
            else:
                has_ended = True  # what was written until then is still read


def read_events(folder: RunFolder, *, is_watching: bool) -> Iterator[Mapping[str, Any]]:
    """Events of the run in order, and those to come if `is_watching`.  Raises CommandError."""
    if not folder.events.exists():
        raise CommandError(Exit.NOT_FOUND, f"{folder.events} does not exist: the run has recorded nothing")
    rest = ""
    for chunk in read_log(folder.events, None, folder if is_watching else None):
        *lines, rest = (rest + chunk).split("\n")
        yield from map(json.loads, lines)


def find_checkpoint_uri(folder: RunFolder, job: str) -> str | None:
    """Checkpoint folder of this job by the files that the run was started with; None: it had no such job."""
    from autoscaler.manifests.documents import read_text  # noqa: PLC0415 - pydantic

    short = job.rpartition("/")[2]
    for file, text in folder.read_manifest().get("files", {}).items():
        for document in read_text(str(file), str(text))[0]:
            if (document.kind, document.name) == ("TrainingJob", short):
                spec = document.content.get("spec") or {}
                return (spec.get("checkpoint") or {}).get("uri") or str(folder.checkpoints / short)
    return None


def format_event(event: Mapping[str, Any]) -> str:
    """The event as one line, or as many as its message has."""
    first, *rest = str(event["message"]).splitlines() or [""]
    head = f"{event['t_s']:8.1f}s  {event['object']:<24} {event['reason']:<14} {first}".rstrip()
    return "\n".join([head, *(" " * 11 + line for line in rest)])
