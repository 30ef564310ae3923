"""`edl run` in the foreground: output while it lasts, orderly stop by Ctrl-C, kill by a second one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import Any, Final, assert_never

from rich.console import Console, RenderableType
from rich.live import Live

from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.local.run_records import format_event
from autoscaler.cli.local.stop_request import StopRequest, stop_on_closed_input, stop_on_signals
from autoscaler.cli.output.live_view import draw
from autoscaler.clusters.local.run_files.run_journal import RunEvent
from autoscaler.jobs.lifecycle import JobEnding
from autoscaler.local_run.local_run import LocalRun
from autoscaler.local_run.run_settings import RunSettings
from autoscaler.local_run.run_snapshot import RunSnapshot
from autoscaler.manifests.api_types import Manifests
from master.api.host.log_lines import PlainFormatter, escape_controls

log = logging.getLogger(__name__)

_ENDED: Final = frozenset({JobEnding.COMPLETED, JobEnding.FAILED})
_EVENTS_LOG: Final = "autoscaler.operator.store.event_recorder"
_FRAMES_PER_S: Final = 4
_EVENTS_SHOWN: Final = 30
_LINGER_S: Final = 1.0
"""Pause after the end of the last job, so that `edl wait` in another terminal sees the end."""


DURATION_OVER: Final = "its duration is over"
JOBS_OVER: Final = "all jobs are over"


class RunOutput(StrEnum):
    VIEW = "view"
    LINES = "lines"
    JSON = "json"


async def run_in_foreground(
    settings: RunSettings,
    manifests: Manifests,
    *,
    output: RunOutput,
    duration_s: float | None,
    stays: bool,
    ends_with_stdin: bool = False,
    background: Callable[[LocalRun], Coroutine[Any, Any, None]] | None = None,
    page_port: int | None = None,
) -> Exit:
    """Run to the end.  OK: all jobs completed, or the duration is over; FAILED: a job failed; INTERRUPTED: Ctrl-C.

    `ends_with_stdin`: standard input is a pipe whose other end is the owner's; where it closes, the owner has gone or
    wants the end, and the run stops as at Ctrl-C.  `background` runs from the submission to the end, as the demo's load
    and faults do.  `page_port`: where the page is served, 0 for a free port, None for no page.  Raises AutoscalerError
    if the run could not start, or crashed.
    """
    stop, kill = StopRequest(), asyncio.Event()
    with stop_on_signals(stop, kill), _quiet_logs(), stop_on_closed_input(stop, is_watched=ends_with_stdin):
        async with (
            LocalRun(settings, report=lambda line: print(escape_controls(line), file=sys.stderr)) as run,
            contextlib.AsyncExitStack() as stack,
        ):
            _print_start(run, output)
            run.recorder.on_event.append(lambda event: _print_event(event, output, stop))
            await run.submit(manifests)
            await stack.enter_async_context(_page(run, output, page_port))
            for notice in manifests.notices if output is RunOutput.VIEW else ():  # they leave the view soon
                _try_print(f"notice: {notice}")
            async with _live_view(run, output):
                async with _background_task(run, background):
                    code, why = await _wait_for_end(run, stop, duration_s, stays=stays or not manifests.jobs)
                await _leave(run, kill, why)
        outcome, last = run.outcomes(), run.snapshot()
    _print_end(run, output, outcome, last)
    return code


@contextlib.asynccontextmanager
async def _page(run: LocalRun, output: RunOutput, port: int | None) -> AsyncIterator[None]:
    """Serve the page inside the block, and say where; a run whose port is taken goes on without it."""
    if port is None:
        yield
        return
    serve_run = await asyncio.to_thread(_import_page)
    async with contextlib.AsyncExitStack() as stack:
        try:
            address = await stack.enter_async_context(serve_run(run, port))
        except OSError as error:
            print(escape_controls(f"edl: no page: port {port} cannot be used: {error.strerror}"), file=sys.stderr)
        else:
            _try_print(json.dumps({"page": address}) if output is RunOutput.JSON else f"page: {address}")
        yield


def _import_page() -> Callable[[LocalRun, int], contextlib.AbstractAsyncContextManager[str]]:
    """Import what serves the page, on a thread: half a second, which the run's own work does not wait for."""
    from autoscaler.cli.local.run_page import RunPageSource  # noqa: PLC0415 - only with a page
    from autoscaler.page.page_server import serve_locally  # noqa: PLC0415 - with it

    return lambda run, port: serve_locally(RunPageSource(run), port=port)


@contextlib.asynccontextmanager
async def _background_task(
    run: LocalRun, background: Callable[[LocalRun], Coroutine[Any, Any, None]] | None
) -> AsyncIterator[None]:
    """Run `background` inside the block; its crash is the run's."""
    if background is None:
        yield
        return
    task = asyncio.create_task(background(run), name="background")
    task.add_done_callback(lambda done: _report_crash(done, run))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _report_crash(task: asyncio.Task[None], run: LocalRun) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        run.crash(error)


async def _wait_for_end(run: LocalRun, stop: StopRequest, duration_s: float | None, *, stays: bool) -> tuple[Exit, str]:
    """Wait for Ctrl-C, the duration, the end of all jobs, or a crash (which is raised); with the reason for people."""
    ends: dict[asyncio.Task[Any], Exit] = {
        asyncio.create_task(stop.wait(), name="stop"): Exit.INTERRUPTED,
        asyncio.create_task(run.crashed(), name="crash"): Exit.FAILED,
    }
    if duration_s is not None:
        ends[asyncio.create_task(asyncio.sleep(duration_s, DURATION_OVER), name="duration")] = Exit.OK
    if not stays:
        ends[asyncio.create_task(_until_jobs_are_over(run), name="end")] = Exit.OK
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
    first = done.pop()
    why = str(first.result())
    return Exit.FAILED if ends[first] is Exit.OK and run.failed_jobs() else ends[first], why


async def _until_jobs_are_over(run: LocalRun) -> str:
    while not run.are_jobs_over():  # noqa: ASYNC110 - many events end a job; polling is simplest
        await asyncio.sleep(1 / _FRAMES_PER_S)
    return await asyncio.sleep(_LINGER_S, JOBS_OVER)


@contextlib.asynccontextmanager
async def _live_view(run: LocalRun, show: RunOutput) -> AsyncIterator[None]:
    """Show the live view inside the block; its last frame stays on the screen."""
    if show is not RunOutput.VIEW:
        yield
        return
    task = asyncio.create_task(_show_view(run), name="view")
    task.add_done_callback(_report_lost_view)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _report_lost_view(task: asyncio.Task[None]) -> None:
    """Log the crash of the view, which does not end the training."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("the live view is gone, the run goes on: %r", error)


async def _show_view(run: LocalRun) -> None:
    console = Console()

    def frame() -> RenderableType:
        hint = "stopping, pods leave; Ctrl-C kills" if run.is_stopping else "Ctrl-C stops it"
        return draw(
            run.snapshot(),
            tuple(run.recorder.events)[-_EVENTS_SHOWN:],
            width=console.width,
            height=console.height,
            hint=hint,
        )

    with Live(console=console, auto_refresh=False, transient=False) as live:
        try:
            while True:
                live.update(frame(), refresh=True)
                await asyncio.sleep(1 / _FRAMES_PER_S)
        finally:
            live.update(frame(), refresh=True)


async def _leave(run: LocalRun, kill: asyncio.Event, why: str) -> None:
    """Stop in order, or at once after a second Ctrl-C."""
    stopping = asyncio.create_task(run.stop(why), name="stop")
    killing = asyncio.create_task(kill.wait(), name="second Ctrl-C")
    await asyncio.wait({stopping, killing}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stopping, killing):
        if not task.done():
            task.cancel()
    await asyncio.gather(killing, return_exceptions=True)
    with contextlib.suppress(asyncio.CancelledError):
        await stopping


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Log EDL's own warnings to standard error, one line each, so that they do not break the view."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.name != _EVENTS_LOG)  # the run's events say the same
    root = logging.getLogger("autoscaler")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _print_start(run: LocalRun, show: RunOutput) -> None:
    folder, metrics = str(run.folder.root), run.metrics_url
    if show is RunOutput.JSON:
        _try_print(json.dumps({"run": folder} | ({"metrics": metrics} if metrics else {})))
        return
    _try_print(f"run folder: {folder}")
    if metrics:
        _try_print(f"metrics: {metrics}")


def _print_event(event: RunEvent, show: RunOutput, stop: StopRequest) -> None:
    """Print an event; if the reader of a pipe has ended (`edl run ... | head`), the run stops in order."""
    match show:
        case RunOutput.JSON:
            is_read = _try_print(json.dumps({"event": asdict(event)}))
        case RunOutput.LINES:
            is_read = _try_print(format_event(asdict(event)))
        case RunOutput.VIEW:
            is_read = True
        case _:
            assert_never(show)
    if not is_read:
        stop.make("nobody reads its output any more")


def _print_end(run: LocalRun, show: RunOutput, outcome: dict[str, str], last: RunSnapshot) -> None:
    if show is RunOutput.JSON:
        messages = {name: message for name in outcome if (message := _message_of(run, name))}
        samples = {
            job.name: {"committed": job.progress.committed, "total": job.progress.total}
            for job in last.jobs
            if job.progress is not None
        }
        end = {"jobs": outcome, "messages": messages, "samples": samples, "run": str(run.folder.root)}
        _try_print(json.dumps(end))
        return
    for name, ending in outcome.items():
        message = _message_of(run, name)
        state = ending if ending in _ENDED else f"stopped with the run; it was {ending}"
        _try_print(f"tj/{name}: {state}" + (f": {message}" if message else ""))
    _try_print(f"run folder: {run.folder.root}")


def _message_of(run: LocalRun, name: str) -> str:
    """Message of the condition with which the job ended; empty before that."""
    record = run.jobs().get(name)
    return "" if record is None else record.life.message


def _try_print(line: str) -> bool:
    """Print a line; False if the reader has ended, and then later output is discarded."""
    try:
        print(escape_controls(line), flush=True)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return False
    return True
