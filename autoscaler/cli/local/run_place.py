"""A run on this machine as a place: requests go to its control socket, logs are read from its folder."""

from __future__ import annotations

import codecs
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit, try_find
from autoscaler.cli.local.control_client import RunGoneError, request, stream
from autoscaler.cli.local.describe_run import format_event, job_lines, section_lines
from autoscaler.cli.output.formats import format_content
from autoscaler.cli.output.object_tables import COLUMNS, ObjectList
from autoscaler.cli.output.phrases import format_ending
from autoscaler.cli.places import (
    EventLine,
    JobFacts,
    LogOptions,
    PlannedSubmission,
    PodSelector,
    SizeChange,
    SizeRequest,
    format_size_changes,
)
from autoscaler.clusters.local.run_files.run_folder import RunFolder

if TYPE_CHECKING:  # the codec is not for --help
    from autoscaler.snapshots import SnapshotContent

_FOLLOW_EVERY_S: Final = 0.1
_LOG_CHUNK_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class LocalRunPlace:
    """`places.Place` of the run in this folder."""

    folder: RunFolder
    namespace: str = ""
    poll_interval_s: float = _FOLLOW_EVERY_S

    @property
    def title(self) -> str:
        return self.folder.root.name

    # ---- reading ------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> ObjectList:
        return ObjectList(objects=request(self.folder, "get", type=kind, name=name), columns=COLUMNS)

    def watch(self, kind: str, name: str) -> Iterator[ObjectList]:
        for item in stream(self.folder, "get", type=kind, name=name):
            yield ObjectList(objects=[item], columns=COLUMNS)

    def describe(self, kind: str, name: str) -> Iterator[str]:
        answer = request(self.folder, "describe", type=kind, name=name)
        found = answer["object"]
        yield from job_lines(found) if found["kind"] == "TrainingJob" else [format_content(found, "yaml")]
        yield from section_lines(answer)

    def log(self, kind: str, name: str, selector: PodSelector, options: LogOptions) -> Iterator[str]:
        if options.is_previous:
            raise CommandError(Exit.USAGE, "a run's logs hold what was written before a restart too: leave -p out")
        answer = request(self.folder, "logs", type=kind, name=name, role=selector.role, ordinal=selector.ordinal)
        return read_log(Path(answer["log"]), options.tail, self.folder if options.is_followed else None)

    def events(self, *, is_watching: bool) -> Iterator[EventLine]:
        found = stream(self.folder, "events") if is_watching else iter(request(self.folder, "events"))
        for event in found:
            yield EventLine(text=format_event(event), content=event)

    def is_condition_met(self, kind: str, name: str, wanted: str) -> bool:
        if wanted == "delete":
            return try_find(lambda: self.get(kind, name)) is None
        try:
            (found,) = self.get(kind, name).objects
        except RunGoneError:
            return self._was_met_at_the_end(name, wanted)
        conditions = conditions_of(found)
        if wanted in {"completed", "complete"} and "failed" in conditions:
            raise CommandError(Exit.FAILED, f"{kind}/{name} has failed: {found['status']['conditions'][0]['message']}")
        return wanted in conditions

    # ---- changing -----------------------------------------------------------------------------------------------

    def scale(self, kind: str, name: str, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        counts = {size.field: size.count for size in sizes}
        done = request(self.folder, "scale", type=kind, name=name, **counts, dry_run=is_dry)
        scaled = [
            SizeChange(request=SizeRequest(field=one["of"], count=one["to"]), before=one["from"], note=one["met"])
            for one in done["sizes"]
        ]
        return format_size_changes(done["scaled"], scaled, is_dry=is_dry)

    def drain(self, kind: str, name: str, selector: PodSelector, *, is_dry: bool) -> str:
        fields = {"role": selector.role, "ordinal": selector.ordinal, "dry_run": is_dry}
        done = request(self.folder, "drain", type=kind, name=name, **fields)["drained"]
        return f"{done} would be drained (dry run)" if is_dry else f"{done} is draining"

    def uncordon(self, kind: str, name: str) -> str:
        return f"{request(self.folder, 'uncordon', type=kind, name=name)['uncordoned']} is open"

    def set_suspended(self, kind: str, name: str, *, is_suspended: bool) -> str:
        word = "suspended" if is_suspended else "resumed"
        return f"{request(self.folder, 'suspend', type=kind, name=name, on=is_suspended)[word]} {word}"

    def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        if is_dry:
            self.get(kind, name)
            return f"{kind}/{name} would be deleted (dry run)"
        return f"{request(self.folder, 'delete', type=kind, name=name)['deleted']} is being deleted"

    # ---- planning -----------------------------------------------------------------------------------------------

    def snapshot(self) -> SnapshotContent:
        from autoscaler.snapshots import from_document  # noqa: PLC0415 - not for --help

        return replace(from_document(request(self.folder, "snapshot")), made_by=f"run {self.title}")

    def job_facts(self, job: str) -> JobFacts:
        found = try_find(lambda: self.get("tj", job).objects[0])
        return JobFacts() if found is None else job_facts_of(found)

    def read_submission(self, file: Path, now_s: float) -> PlannedSubmission:
        from autoscaler.cli.local.run_submission import read_local_submission  # noqa: PLC0415 - not for --help

        return read_local_submission(file, now_s)

    def _was_met_at_the_end(self, name: str, wanted: str) -> bool:
        """True if the run's manifest, written at its end, says so of the job."""
        phase = str(self.folder.read_manifest().get("jobs", {}).get(name, "")).lower()
        if wanted == phase:
            return True
        raise RunGoneError(self.folder)


def job_facts_of(job: Mapping[str, Any]) -> JobFacts:
    """Facts of a run's job that no plan has."""
    status, servers = job["status"], job["spec"]["parameterServer"]
    ending, age_s = status["phase"], status["endedSeconds"]
    return JobFacts(
        ended=format_ending(ending, age_s, status["conditions"][0]["message"]) if age_s is not None else "",
        is_ratio_measured=servers is not None and isinstance(servers["trainersPerServer"], str),  # auto
    )


def conditions_of(found: Mapping[str, Any]) -> set[str]:
    """The conditions of an object of a run that are true, in lower case."""
    status, phase = found["status"], str(found["status"].get("phase", "")).lower()
    match found["kind"]:
        case "TrainingJob":
            return {phase, "complete"} if phase == "completed" else {phase}
        case "Pod":
            return {"ready"} if phase == "running" else set()
        case "Deployment":
            return {"available"} if status["readyReplicas"] >= found["spec"]["replicas"] else set()
        case _:
            return {"ready"}


def read_log(path: Path, tail: int | None, folder: RunFolder | None) -> Iterator[str]:
    """Content of the log file; with a folder also what is appended, until its run ends.

    A file that has become shorter (`pod_logs`) is read again from its beginning.
    """
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    with path.open("rb") as log:
        if tail is not None:
            yield decode(b"".join(deque(log, maxlen=tail)))
        while True:
            if chunk := log.read(_LOG_CHUNK_BYTES):
                yield decode(chunk)
            elif folder is None or not folder.is_live():
                return
            elif path.stat().st_size < log.tell():
                log.seek(0)
            else:
                time.sleep(_FOLLOW_EVERY_S)
