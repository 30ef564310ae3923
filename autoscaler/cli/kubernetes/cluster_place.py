"""A Kubernetes cluster as a place: the calls of one command, one after the other, over one connection.

The connection has an event loop of its own, which ends with the command.  Errors of the API server become
CommandErrors.
"""

from __future__ import annotations

import asyncio
import codecs
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from autoscaler.cli.exit_codes import CommandError, Exit, try_find
from autoscaler.cli.kubernetes.api_errors import to_command_error
from autoscaler.cli.kubernetes.cluster_events import format_cluster_event, is_about, is_of_jobs, sort_by_time
from autoscaler.cli.kubernetes.cluster_tables import cluster_columns
from autoscaler.cli.kubernetes.gpu_tables import gpu_rows, jobs_of_pods, nodes_of_pods
from autoscaler.cli.kubernetes.kubeconfig import find_cluster
from autoscaler.cli.kubernetes.live_replicas import LiveReplicas, live_replicas_of
from autoscaler.cli.kubernetes.object_reader import KINDS, ObjectReader, parse_type
from autoscaler.cli.kubernetes.object_watch import watch_objects
from autoscaler.cli.kubernetes.object_writer import ObjectWriter
from autoscaler.cli.kubernetes.top_lines import TopLine, Usage, disputed_gpus, holder_lines, node_lines
from autoscaler.cli.output.formats import format_content, section
from autoscaler.cli.output.object_tables import Columns, ObjectList, PlainObject, format_table, single_row
from autoscaler.cli.output.throughput_plot import throughput_lines
from autoscaler.cli.place_values import (
    EventLine,
    JobFacts,
    LogOptions,
    PlannedSubmission,
    PodSelector,
    SizeRequest,
    TopSubject,
)
from autoscaler.clusters.kubernetes.api.api_port import Raw, Scope
from autoscaler.clusters.kubernetes.api.kinds import EVENTS, PODS
from autoscaler.clusters.kubernetes.objects.fields import condition_of, parts, text
from autoscaler.errors import ClusterError
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:  # the planner is for those commands that ask it
    from autoscaler.cli.kubernetes.cluster_snapshot import ClusterSnapshot
    from autoscaler.clusters.kubernetes.parsing.priority_classes import PriorityClasses
    from autoscaler.domain import Resources
    from autoscaler.snapshots import SnapshotContent

T = TypeVar("T")

_POLL_INTERVAL_S: Final = 1.0
_EVENTS_DESCRIBED: Final = 12


@contextmanager
def open_cluster(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, is_all_namespaces: bool
) -> Iterator[ClusterPlace]:
    """The cluster that the options select, until the end of the block.  Raises CommandError."""
    from autoscaler.clusters.kubernetes.api.clock_skew import ServerClock  # noqa: PLC0415 - not for runs
    from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy  # noqa: PLC0415 - with it
    from autoscaler.clusters.kubernetes.api.http_client import connect  # noqa: PLC0415 - with it

    policy = ConnectionPolicy(attempts=2, budget_s=5.0)
    target, clock = find_cluster(kubeconfig, context, namespace), ServerClock(time.time, steady_clock=time.monotonic)
    with asyncio.Runner() as runner:
        try:
            api = runner.run(
                connect(target.kubeconfig, context=target.context, policy=policy, report_skew=clock.set_ahead)
            )
        except ClusterError as error:
            raise CommandError(Exit.NOT_FOUND, str(error)) from None
        reader = ObjectReader(api=api, namespace=target.namespace, is_all_namespaces=is_all_namespaces)
        try:
            yield ClusterPlace(runner, reader, ObjectWriter(reader, server_now_s=clock.now_s), title=target.title)
        finally:
            runner.run(api.close())


class ClusterPlace:
    """Place of a cluster's jobs.

    Every call raises CommandError with the exit code of the failure.  `kind` is one of `clusters.object_kinds`, or one
    of its other names.  A call that changes something returns the line to print.
    """

    poll_interval_s: float = _POLL_INTERVAL_S

    def __init__(self, runner: asyncio.Runner, reader: ObjectReader, writer: ObjectWriter, *, title: str) -> None:
        self.title: Final = title
        self._runner = runner
        self._reader = reader
        self._writer = writer
        self._classes: PriorityClasses | None = None

    @property
    def namespace(self) -> str:
        """Namespace of a name without one; empty where `snapshot` has names without one."""
        return self._reader.namespace

    # ---- reading ------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> ObjectList:
        """All objects of a type, or the one of this name."""
        return self._do(self._get(parse_type(kind), name))

    def checkpoint_uri(self, job: str) -> str:
        """The checkpoint folder of this job.  Raises CommandError."""
        (found,) = self.get("tj", job).objects
        return str(found["spec"]["checkpoint"]["uri"])

    def watch(self, kind: str, name: str) -> Iterator[ObjectList]:
        """Each object as it is, and again whenever it changes."""
        known = KINDS[parse_type(kind)]
        namespace, short = self._reader.split(name)
        if name:
            self._do(self._reader.find(parse_type(kind), name))  # raises if there is none
        scope = Scope(namespace=namespace, fields=f"metadata.name={short}") if name else self._reader.scope()
        rows = self._do(self._rows_of(parse_type(kind)))
        for one in self._iterate(watch_objects(self._reader.api, known, scope if known.is_namespaced else Scope())):
            if not name or text(one, "metadata", "name") == short:
                columns = self._columns(has_namespaces=self._reader.is_all_namespaces)
                yield ObjectList(objects=[one], columns=columns, rows=rows)

    def top(self, subject: TopSubject) -> list[TopLine]:
        """Who holds what, and who works, now."""
        return self._do(self._top(subject))

    @property
    def has_namespaces(self) -> bool:
        """True if lists show objects of all namespaces."""
        return self._reader.is_all_namespaces

    def describe(self, kind: str, name: str) -> Iterator[str]:
        """Lines about one object: its state, the reason for its size, its pods, its events."""
        return iter(self._do(self._describe(parse_type(kind), name)))

    def log(self, kind: str, name: str, selector: PodSelector, options: LogOptions) -> Iterator[str]:
        """The log of a pod, in pieces."""
        pod = self._do(self._reader.pod_of(parse_type(kind), name, selector))
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        for chunk in self._iterate(self._reader.log(pod, options)):
            yield decode(chunk)

    def events(self, *, is_watching: bool) -> Iterator[EventLine]:
        """Events in order, and those to come if `is_watching`."""
        wide = self._reader.is_all_namespaces
        found: Iterator[Raw] = (
            self._iterate(self._reader.follow_events()) if is_watching else iter(self._do(self._reader.events()))
        )
        for event in found:
            yield format_cluster_event(event, time.time(), has_namespaces=wide)

    def is_condition_met(self, kind: str, name: str, wanted: str) -> bool:
        """True if a condition holds (`parameter_types.parse_condition`).  CommandError FAILED: it never will."""
        kind = parse_type(kind)
        if wanted == "delete":
            return try_find(lambda: self._do(self._reader.find(kind, name))) is None
        found = self._do(self._reader.find(kind, name))
        holding = conditions_of(found)
        if wanted in {"completed", "complete"} and "failed" in holding:
            raise CommandError(
                Exit.FAILED, f"{kind}/{name} has failed: {text(condition_of(found, 'Failed'), 'message')}"
            )
        return wanted in holding

    # ---- changing -----------------------------------------------------------------------------------------------

    def create_job(self, body: Raw) -> str:
        """Create a TrainingJob in this place's namespace."""
        metadata = {"namespace": self._reader.namespace, **body["metadata"]}
        return self._do(self._writer.create_job({**body, "metadata": metadata}))

    def scale(self, kind: str, name: str, sizes: Sequence[SizeRequest], *, is_dry: bool) -> str:
        """Set these sizes, all or none."""
        return self._do(self._writer.scale(parse_type(kind), name, sizes, is_dry=is_dry))

    def drain(self, kind: str, name: str, selector: PodSelector, *, is_dry: bool) -> str:
        """Let a pod finish its batch and leave, or make EDL's pods leave a node."""
        return self._do(self._writer.drain(parse_type(kind), name, selector, is_dry=is_dry))

    def keep_pod(self, name: str, for_s: float) -> str:
        """Leave the pod's GPUs alone for so long, though nobody uses them."""
        return self._do(self._writer.keep_pod(name, for_s))

    def uncordon(self, kind: str, name: str) -> str:
        """Open a drained node again."""
        return self._do(self._writer.uncordon(parse_type(kind), name))

    def set_suspended(self, kind: str, name: str, *, is_suspended: bool) -> str:
        """Suspend a job (its pods are deleted, the job stays), or resume it."""
        return self._do(self._writer.set_suspended(parse_type(kind), name, is_suspended=is_suspended))

    def compare_replicas(self, job: str, *, budget_s: float) -> LiveReplicas:
        """The comparison of a group's replicas that is made now, or the last one if none is within the budget."""
        request = secrets.token_hex(8)
        self._do(self._writer.request_comparison(job, request))
        ends_s = time.monotonic() + budget_s
        while True:
            found = self._do(self._reader.find("tj", job))
            compared = live_replicas_of(found, request)
            is_over = "completed" in conditions_of(found)
            if compared.is_settled or is_over or time.monotonic() >= ends_s:
                return compared
            time.sleep(_POLL_INTERVAL_S)

    def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        """Stop an object and drop its record."""
        return self._do(self._writer.delete(parse_type(kind), name, is_dry=is_dry))

    # ---- planning -----------------------------------------------------------------------------------------------

    def snapshot(self) -> SnapshotContent:
        """Everything that a plan depends on, at this instant."""
        from autoscaler.cli.kubernetes.cluster_snapshot import read_cluster_snapshot  # noqa: PLC0415 - the planner is for those who ask it

        found = self._do(read_cluster_snapshot(self._reader.api, title=self.title, now_s=time.time()))
        self._classes = found.classes
        for note in self._notes_of(found):
            print(escape_controls(f"edl: {note}"), file=sys.stderr)
        return found.snapshot

    def job_facts(self, job: str) -> JobFacts:
        """Facts about a job that the snapshot lacks; empty facts for an unknown job."""
        from autoscaler.cli.kubernetes.describe_job import job_facts_of  # noqa: PLC0415 - pydantic

        found = try_find(lambda: self._do(self._reader.find("tj", job)))
        return JobFacts() if found is None else job_facts_of(found, time.time())

    def read_submission(self, file: Path, now_s: float) -> PlannedSubmission:
        """Jobs and workloads that this file would bring here, submitted at `now_s`."""
        from autoscaler.cli.kubernetes.cluster_snapshot import read_cluster_submission  # noqa: PLC0415 - with it

        assert self._classes is not None, "a submission is read after the snapshot that it is added to"
        return read_cluster_submission(file, namespace=self.namespace, classes=self._classes, now_s=now_s)

    # ---- what a run on this machine has otherwise (`local.run_place`) -------------------------------------------

    def _to_command_error(self, error: ClusterError) -> CommandError:
        """The command's error for one of the API server."""
        return to_command_error(error, self.title)

    def _columns(self, *, used: Mapping[str, Resources] | None = None, has_namespaces: bool = False) -> Columns:
        """See `cluster_columns`."""
        return cluster_columns(time.time(), used=used, has_namespaces=has_namespaces)

    def _notes_of(self, found: ClusterSnapshot) -> Sequence[str]:
        """Notes for the user about the snapshot."""
        return (*found.origin, *found.omissions)

    # ---- calls --------------------------------------------------------------------------------------------------

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(call)
        except ClusterError as error:
            raise self._to_command_error(error) from None

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def next_item() -> T | None:
            return await anext(items, None)

        while (found := self._do(next_item())) is not None:
            yield found

    async def _get(self, kind: str, name: str) -> ObjectList:
        objects = [await self._reader.find(kind, name)] if name else await self._reader.list_all(kind)
        used = await self._reader.requests_by_node() if kind == "node" else None
        wide = self._reader.is_all_namespaces and not name
        return ObjectList(
            objects=objects, columns=self._columns(used=used, has_namespaces=wide), rows=await self._rows_of(kind)
        )

    async def _rows_of(self, kind: str) -> Callable[[PlainObject], Sequence[PlainObject]]:
        if kind != "gpus":
            return single_row
        pods, disputed = await self._reader.pods_of_jobs(), await self._disputed()
        jobs, nodes = jobs_of_pods(pods), nodes_of_pods(pods)
        return lambda found: gpu_rows(found, jobs, time.time(), nodes=nodes, disputed=disputed)

    async def _disputed(self) -> frozenset[str]:
        """GPUs that two nodes report; none where not all reports may be listed."""
        try:
            return disputed_gpus(await self._reader.reports(), time.time())
        except ClusterError:
            return frozenset()

    async def _top(self, subject: TopSubject) -> list[TopLine]:
        found, now_s, usage = await self._reader.reports(), time.time(), await self._usage()
        if subject is TopSubject.NODES:
            nodes = [text(one, "metadata", "name") for one in await self._reader.list_all("node")]
            return node_lines(found, nodes, usage, now_s)
        pods = await self._reader.pods_of_jobs()
        return holder_lines(
            found,
            jobs_of_pods(pods),
            usage,
            now_s,
            nodes=nodes_of_pods(pods),
            are_pods_apart=subject is TopSubject.PODS,
            namespace=None if self._reader.is_all_namespaces else self._reader.namespace,
        )

    async def _usage(self) -> Usage:
        """Cores and memory in use, where somebody tells."""
        return await self._reader.usage()

    async def _describe(self, kind: str, name: str) -> list[str]:
        from autoscaler.cli.kubernetes.describe_job import job_lines, resize_lines  # noqa: PLC0415 - pydantic

        found, now_s = await self._reader.find(kind, name), time.time()
        lines = job_lines(found, now_s) if kind == "tj" else [format_content(found, "yaml")]
        lines += section("Throughput", throughput_lines(found) if kind == "tj" else [])
        pods = await self._pods_beside(kind, name)
        lines += section("Pods", format_table(pods, is_wide=False, columns=self._columns()))
        lines += section("Resizes", resize_lines(found, now_s) if kind == "tj" else [])
        return lines + section(
            "Events", [format_cluster_event(one, now_s).text for one in await self._events_of(kind, found)]
        )

    async def _pods_beside(self, kind: str, name: str) -> list[Raw]:
        match kind:
            case "tj":
                return list(await self._reader.pods_of(name))
            case "node":
                return list((await self._reader.listing(PODS, Scope(fields=f"spec.nodeName={name}"))).items)
            case "deployment":
                return list(await self._reader.replicas_of(name))
            case _:
                return []

    async def _events_of(self, kind: str, found: PlainObject) -> list[Raw]:
        namespace, name = text(found, "metadata", "namespace"), text(found, "metadata", "name")
        events = (await self._reader.listing(EVENTS, Scope(namespace=namespace or None))).items
        if kind == "tj":
            about = [one for one in events if is_of_jobs(one, {(namespace, name)})]
        else:
            about = [one for one in events if is_about(one, KINDS[kind].kind, name)]
        return sort_by_time(about)[-_EVENTS_DESCRIBED:]


def conditions_of(found: PlainObject) -> set[str]:
    """The conditions of an object that are true, in lower case, and their aliases of `edl wait`."""
    holding = {text(one, "type").lower() for one in parts(found, "status", "conditions") if one.get("status") == "True"}
    match found["kind"]:
        case "TrainingJob":
            aliases = {"ready": "running", "completed": "complete"}
            return holding | {alias for kind, alias in aliases.items() if kind in holding}
        case "Pod":
            return holding | {text(found, "status", "phase").lower()}
        case _:
            return holding
