"""A run on this machine as a place: the cluster behind its control socket, and the logs and events in its folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.api_errors import to_command_error
from autoscaler.cli.kubernetes.cluster_place import ClusterPlace
from autoscaler.cli.kubernetes.name_completion import list_names_at
from autoscaler.cli.kubernetes.object_reader import ObjectReader, parse_type
from autoscaler.cli.kubernetes.object_writer import ObjectWriter
from autoscaler.cli.local.run_records import FOLLOW_EVERY_S, find_checkpoint_uri, format_event, read_events, read_log
from autoscaler.cli.output.object_tables import Column, Columns, ObjectList
from autoscaler.cli.place_values import EventLine, LogOptions, PlannedSubmission, PodSelector, SizeRequest
from autoscaler.clusters.kubernetes.api.api_port import Api, Scope
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, RefusedBy, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.objects.fields import text
from autoscaler.clusters.kubernetes.objects.names import pod_name
from autoscaler.clusters.local.control_plane.socket_client import SocketApi
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from autoscaler.domain import Role
from autoscaler.errors import ClusterError

if TYPE_CHECKING:  # the planner is for those commands that ask it
    from autoscaler.cli.kubernetes.cluster_snapshot import ClusterSnapshot
    from autoscaler.cli.kubernetes.top_lines import Usage
    from autoscaler.domain import Resources
    from autoscaler.snapshots import SnapshotContent

_MOST_REPLICAS: Final = 10_000
"""A run creates them all at once, as objects in its memory."""

_OF_A_RUN: Final = {"PID": "edl.dev/pid", "PORT": "edl.dev/port", "GPUS": "edl.dev/gpus"}
"""More columns of pods, and their annotations."""


class RunGoneError(CommandError):
    """The run ended before or during a call."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(
            Exit.NOT_FOUND, f"the run in {folder.root} is over; its events.jsonl, logs/ and checkpoints/ remain"
        )


@contextmanager
def open_run(folder: RunFolder) -> Iterator[RunPlace]:
    """The run in this folder, until the end of the block."""
    with asyncio.Runner() as runner:
        yield RunPlace(runner, SocketApi(folder.control_socket()), folder)


def list_names(folder: RunFolder, types: Sequence[str]) -> list[str]:
    """TYPE/NAME of every object of these types."""
    namespace, *_ = namespaces_of(folder)
    return list_names_at(SocketApi(folder.control_socket()), namespace, types)


class RunPlace(ClusterPlace):
    """The place of a run: a cluster whose API server answers on a socket."""

    poll_interval_s = FOLLOW_EVERY_S

    def __init__(self, runner: asyncio.Runner, api: Api, folder: RunFolder) -> None:
        namespace, *others = namespaces_of(folder)
        reader = ObjectReader(api=api, namespace=namespace, is_all_namespaces=bool(others))
        super().__init__(runner, reader, ObjectWriter(reader, empties_nodes=True), title=folder.root.name)
        self._folder = folder

    @property
    def namespace(self) -> str:
        """None: `snapshot` shows names as the files of the run have them."""
        return ""

    def checkpoint_uri(self, job: str) -> str:
        """Also of a job whose run is over."""
        try:
            return super().checkpoint_uri(job)
        except RunGoneError:
            if (uri := find_checkpoint_uri(self._folder, job)) is not None:
                return uri
            raise

    def watch(self, kind: str, name: str) -> Iterator[ObjectList]:
        is_begun = False
        try:
            for found in super().watch(kind, name):
                is_begun = True
                yield found
        except RunGoneError:
            if not is_begun:
                raise

    def log(self, kind: str, name: str, selector: PodSelector, options: LogOptions) -> Iterator[str]:
        if options.is_previous:
            raise CommandError(Exit.USAGE, "a run's logs hold what was written before a restart too: leave -p out")
        path = self._log_of(parse_type(kind), name, selector)
        return read_log(path, options.tail, self._folder if options.is_followed else None)

    def events(self, *, is_watching: bool) -> Iterator[EventLine]:
        for event in read_events(self._folder, is_watching=is_watching):
            yield EventLine(text=format_event(event), content=event)

    def is_condition_met(self, kind: str, name: str, wanted: str) -> bool:
        try:
            return super().is_condition_met(kind, name, wanted)
        except RunGoneError:
            phase = str(self._folder.read_manifest().get("jobs", {}).get(name, "")).lower()
            if wanted == phase:
                return True
            raise

    def scale(self, kind: str, name: str, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        if any(size.count > _MOST_REPLICAS for size in sizes):
            raise CommandError(Exit.USAGE, f"a run has at most {_MOST_REPLICAS} replicas of anything")
        return super().scale(kind, name, sizes, is_dry=is_dry)

    def snapshot(self) -> SnapshotContent:
        return as_in_files(super().snapshot(), self._folder)

    def read_submission(self, file: Path, now_s: float) -> PlannedSubmission:
        from autoscaler.cli.local.what_if_submission import read_local_submission  # noqa: PLC0415 - with it

        return read_local_submission(file, now_s)

    async def _usage(self) -> Usage:
        from autoscaler.cli.local.process_usage import usage_of_pods  # noqa: PLC0415 - for this command alone

        return await usage_of_pods((await self._reader.listing(PODS, Scope())).items)

    def _log_of(self, kind: str, name: str, selector: PodSelector) -> Path:
        """The log of the pod that is meant, also of one that is gone; of an ended run a job's first one."""
        namespace, short = self._reader.split(name)
        role = Role(selector.role or Role.TRAINER)
        if kind == "tj" and selector.ordinal is not None:
            named = pod_name(short, role, selector.ordinal)
        else:
            named = short if kind == "pod" else ""
        if named and (path := self._folder.log_of(named)).exists():
            return path
        try:
            pod = text(self._do(self._reader.pod_of(kind, f"{namespace}/{short}", selector)), "metadata", "name")
        except RunGoneError:
            logs = sorted(self._folder.logs.glob(f"{short}-{role}-*.log"))
            if named or kind != "tj" or not logs:
                raise
            return logs[0]
        if (path := self._folder.log_of(pod)).exists():
            return path
        raise CommandError(Exit.NOT_FOUND, f"pod/{pod} has not started yet: it has no log")

    def _to_command_error(self, error: ClusterError) -> CommandError:
        match error:
            case UnavailableError() if not self._folder.is_live():
                return RunGoneError(self._folder)
            case UnavailableError():
                return CommandError(Exit.FAILED, f"{error} ({self._folder.root})")
            case ForbiddenError(refused_by=RefusedBy.RBAC):
                return CommandError(Exit.REFUSED, str(error))
            case _:
                return to_command_error(error, self.title)

    def _columns(self, *, used: Mapping[str, Resources] | None = None, has_namespaces: bool = False) -> Columns:
        columns = super()._columns(used=used, has_namespaces=has_namespaces)
        return {**columns, "Pod": (*columns["Pod"], *map(_annotation, _OF_A_RUN))}

    def _notes_of(self, found: ClusterSnapshot) -> Sequence[str]:
        return found.omissions


def namespaces_of(folder: RunFolder) -> tuple[str, ...]:
    """The namespaces of the run's objects: first that of names without one.  Raises CommandError."""
    try:
        return tuple(folder.read_manifest().get("namespaces", ())) or ("default",)
    except (OSError, ValueError) as error:
        raise CommandError(Exit.REFUSED, str(error)) from None


def as_in_files(snapshot: SnapshotContent, folder: RunFolder) -> SnapshotContent:
    """The snapshot with names as the files of the run have them.  Raises CommandError."""
    from autoscaler.snapshots import from_document, to_document  # noqa: PLC0415 - the planner is for those who ask it

    namespace, *_ = namespaces_of(folder)
    document = without_namespace(to_document(snapshot), namespace)
    return replace(from_document(document), made_by=f"run {folder.root.name}")


def without_namespace(document: Any, namespace: str) -> Any:
    """The document with NAME in place of NAMESPACE/NAME, for this one namespace."""
    match document:
        case dict():
            return {
                without_namespace(key, namespace): without_namespace(value, namespace)
                for key, value in document.items()
            }
        case list():
            return [without_namespace(item, namespace) for item in document]
        case str():
            return document.removeprefix(f"{namespace}/")
        case _:
            return document


def _annotation(title: str) -> Column:
    return Column(title=title, cell=lambda o: text(o, "metadata", "annotations", _OF_A_RUN[title]), is_wide=True)
