"""A Kubernetes cluster as a place: each command's questions, one after the other, over one connection.

The connection lives in an event loop of its own, as long as the command; what it raises becomes a command's error.
"""

from __future__ import annotations

import asyncio
import codecs
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.api_errors import to_command_error
from autoscaler.cli.kubernetes.cluster_events import in_order, is_about, is_of_jobs, tell_event
from autoscaler.cli.kubernetes.cluster_tables import cluster_columns
from autoscaler.cli.kubernetes.describe_job import aside_of, job_lines, resize_lines
from autoscaler.cli.kubernetes.kubeconfig import find_target
from autoscaler.cli.kubernetes.object_reader import KINDS, Asking, type_named
from autoscaler.cli.kubernetes.object_watch import follow
from autoscaler.cli.kubernetes.object_writer import Changes
from autoscaler.cli.output.formats import to_yaml
from autoscaler.cli.output.object_tables import Columns, Object, format_table
from autoscaler.cli.places import Aside, Found, LogOptions, Seat, Size, Submission, Told
from autoscaler.clusters.kubernetes.api.client import connect
from autoscaler.clusters.kubernetes.api.connection import ConnectionPolicy
from autoscaler.clusters.kubernetes.api.kinds import EVENTS, PODS
from autoscaler.clusters.kubernetes.api.port import Raw, Scope
from autoscaler.clusters.kubernetes.reading.raw import condition_of, parts, text
from autoscaler.errors import ClusterError
from master.api.lines import at_rest

if TYPE_CHECKING:  # the planner is for those commands that ask it
    from autoscaler.clusters.kubernetes.reading.priorities import PriorityClasses
    from autoscaler.snapshots import Snapshot

T = TypeVar("T")

_LOOK_EVERY_S: Final = 1.0
_EVENTS_DESCRIBED: Final = 12
_PATIENCE: Final = ConnectionPolicy(attempts=2, budget_s=5.0)


@contextmanager
def open_cluster(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, is_everywhere: bool
) -> Iterator[ClusterPlace]:
    """The cluster that the options mean, until the end of the block.  Raises CommandError."""
    target = find_target(kubeconfig, context, namespace)
    with asyncio.Runner() as runner:
        try:
            api = runner.run(connect(target.kubeconfig, context=target.context, policy=_PATIENCE))
        except ClusterError as error:
            raise CommandError(Exit.NOT_FOUND, str(error)) from None
        asking = Asking(api=api, namespace=target.namespace, is_everywhere=is_everywhere)
        try:
            yield ClusterPlace(runner, asking, title=target.title)
        finally:
            runner.run(api.close())


class ClusterPlace:
    """`places.Place` of a cluster."""

    look_every_s: Final = _LOOK_EVERY_S

    def __init__(self, runner: asyncio.Runner, asking: Asking, *, title: str) -> None:
        self.title: Final = title
        self._runner = runner
        self._asking = asking
        self._changes = Changes(asking)
        self._classes: PriorityClasses | None = None

    @property
    def namespace(self) -> str:
        """Where a name without one is looked for."""
        return self._asking.namespace

    # ---- looking ------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> Found:
        return self._do(self._get(type_named(kind), name))

    def watch(self, kind: str, name: str) -> Iterator[Found]:
        known = KINDS[type_named(kind)]
        namespace, short = self._asking.split(name)
        if name:
            self._do(self._asking.find(type_named(kind), name))  # refuses what is not there
        scope = Scope(namespace=namespace, fields=f"metadata.name={short}") if name else self._asking.scope()
        for thing in self._iterate(follow(self._asking.api, known, scope if known.is_namespaced else Scope())):
            if not name or text(thing, "metadata", "name") == short:
                yield Found(objects=[thing], columns=self._columns())

    def describe(self, kind: str, name: str) -> Iterator[str]:
        return iter(self._do(self._describe(type_named(kind), name)))

    def log(self, kind: str, name: str, seat: Seat, options: LogOptions) -> Iterator[str]:
        pod = self._do(self._asking.pod_of(type_named(kind), name, seat))
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        for chunk in self._iterate(self._asking.log(pod, options)):
            yield decode(chunk)

    def events(self, *, is_watching: bool) -> Iterator[Told]:
        wide = self._asking.is_everywhere
        found: Iterator[Raw] = (
            self._iterate(self._asking.follow_events()) if is_watching else iter(self._do(self._asking.events()))
        )
        for event in found:
            yield tell_event(event, time.time(), has_namespaces=wide)

    def holds(self, kind: str, name: str, wanted: str) -> bool:
        kind = type_named(kind)
        try:
            found = self._do(self._asking.find(kind, name))
        except CommandError as error:
            if error.code is Exit.NOT_FOUND and wanted == "delete":
                return True
            raise
        holding = conditions_of(found)
        if wanted in {"completed", "complete"} and "failed" in holding:
            raise CommandError(
                Exit.FAILED, f"{kind}/{name} has failed: {text(condition_of(found, 'Failed'), 'message')}"
            )
        return wanted in holding

    # ---- changing -----------------------------------------------------------------------------------------------

    def scale(self, kind: str, name: str, sizes: Sequence[Size], *, is_dry: bool) -> str:
        return self._do(self._changes.scale(type_named(kind), name, sizes, is_dry=is_dry))

    def drain(self, kind: str, name: str, seat: Seat, *, is_dry: bool) -> str:
        return self._do(self._changes.drain(type_named(kind), name, seat, is_dry=is_dry))

    def uncordon(self, kind: str, name: str) -> str:
        return self._do(self._changes.uncordon(type_named(kind), name))

    def suspend(self, kind: str, name: str, *, is_on: bool) -> str:
        return self._do(self._changes.suspend(type_named(kind), name, is_on=is_on))

    def delete(self, kind: str, name: str, *, is_dry: bool) -> str:
        return self._do(self._changes.delete(type_named(kind), name, is_dry=is_dry))

    # ---- planning -----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        from autoscaler.cli.kubernetes.cluster_snapshot import take  # noqa: PLC0415 - the planner is for those who ask it

        taken = self._do(take(self._asking.api, title=self.title, now_s=time.time()))
        self._classes = taken.classes
        for note in taken.notes:
            print(at_rest(f"edl: {note}"), file=sys.stderr)
        return taken.snapshot

    def aside(self, job: str) -> Aside:
        try:
            found = self._do(self._asking.find("tj", job))
        except CommandError as error:
            if error.code is Exit.NOT_FOUND:
                return Aside()
            raise
        return aside_of(found, time.time())

    def read_submission(self, file: Path, now_s: float) -> Submission:
        from autoscaler.cli.kubernetes.cluster_submission import read_cluster_submission  # noqa: PLC0415 - with it

        assert self._classes is not None, "a submission is read after the moment that it is put into"
        return read_cluster_submission(file, namespace=self.namespace, classes=self._classes, now_s=now_s)

    # ---- asking -------------------------------------------------------------------------------------------------

    def _do(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(asked)
        except ClusterError as error:
            raise to_command_error(error, self.title) from None

    def _iterate(self, things: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T | None:
            return await anext(things, None)

        while (found := self._do(following())) is not None:
            yield found

    async def _get(self, kind: str, name: str) -> Found:
        objects = [await self._asking.find(kind, name)] if name else await self._asking.all(kind)
        used = await self._asking.used() if kind == "node" else None
        wide = self._asking.is_everywhere and not name
        return Found(objects=objects, columns=cluster_columns(time.time(), used=used, has_namespaces=wide))

    async def _describe(self, kind: str, name: str) -> list[str]:
        found, now_s = await self._asking.find(kind, name), time.time()
        lines = job_lines(found, now_s) if kind == "tj" else [to_yaml(found)]
        pods = await self._pods_beside(kind, name)
        lines += _part("Pods:", format_table(pods, is_wide=False, columns=cluster_columns(now_s)))
        lines += _part("Resizes:", resize_lines(found, now_s) if kind == "tj" else [])
        return lines + _part("Events:", [tell_event(one, now_s).text for one in await self._events_of(kind, found)])

    async def _pods_beside(self, kind: str, name: str) -> list[Raw]:
        match kind:
            case "tj":
                return list(await self._asking.pods_of(name))
            case "node":
                return list((await self._asking.listing(PODS, Scope(fields=f"spec.nodeName={name}"))).items)
            case _:
                return []

    async def _events_of(self, kind: str, found: Object) -> list[Raw]:
        namespace, name = text(found, "metadata", "namespace"), text(found, "metadata", "name")
        events = (await self._asking.listing(EVENTS, Scope(namespace=namespace or None))).items
        if kind == "tj":
            about = [one for one in events if is_of_jobs(one, {(namespace, name)})]
        else:
            about = [one for one in events if is_about(one, KINDS[kind].kind, name)]
        return in_order(about)[-_EVENTS_DESCRIBED:]

    def _columns(self) -> Columns:
        return cluster_columns(time.time(), has_namespaces=self._asking.is_everywhere)


def conditions_of(found: Object) -> set[str]:
    """The conditions that hold of a cluster's thing, in small letters; what `edl wait` knows by other names too."""
    holding = {text(one, "type").lower() for one in parts(found, "status", "conditions") if one.get("status") == "True"}
    match found["kind"]:
        case "TrainingJob":
            aliases = {"ready": "running", "completed": "complete"}
            return holding | {alias for kind, alias in aliases.items() if kind in holding}
        case "Pod":
            return holding | {text(found, "status", "phase").lower()}
        case _:
            return holding


def _part(title: str, lines: list[str]) -> list[str]:
    return [title, *(f"  {line}" for text_ in lines for line in text_.splitlines())] if lines else []
