"""The page of a cluster with 1,000 jobs and 20,000 pods: first paint, event to page, 200 viewers, and decisions beside.

Three processes on one machine: the page with an API server in memory, whose cost is counted as the page's; the viewers,
each with a token of their own, nine of ten with the rights to one namespace of twenty; and a planner that makes one
plan after the other, as the operator would beside the page.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import statistics
import time
from contextlib import AsyncExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any, Final

import aiohttp

from autoscaler.cluster_page.cluster_access import ClusterAccess
from autoscaler.cluster_page.cluster_source import ClusterSource
from autoscaler.cluster_page.viewer_access import ViewerAccess
from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.errors import PermanentError
from autoscaler.page.access.request_checks import LOOPBACK_HOSTS
from autoscaler.page.page_app import PageApp, PageSettings
from autoscaler.page.page_server import serving
from autoscaler.planner import Memo, plan
from bench.page.page_clusters import ADMIN, NAMESPACES, change_job, make_server, namespace_of
from bench.planner.planner_clusters import NOW_S, OPEN, at_rest, with_one_more_web_pod
from bench.reporting.result_rows import Row, load, print_rows

VIEWERS: Final = 200
MEASURED_S: Final = 40.0
CHANGE_EVERY_S: Final = 1.0
PAINTS: Final = 5
EVENTS: Final = 10
DEADLINE_S: Final = 300.0
NODES, JOBS, SHAPES = 2_500, 250, 40
"""Of the planner's cluster."""
PAUSE_S: Final = 0.1  # between two decisions, as the loop's own


def main() -> None:
    """Measure and print the rows."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    page = context.Process(target=_run_page, args=(there,), daemon=True)
    page.start()
    port, pid = here.recv()
    first_s, _ = asyncio.run(_paint(f"http://127.0.0.1:{port}", ADMIN))
    here.send("look")
    here.recv()
    decided, deciding = context.Pipe()
    planner = context.Process(target=_run_planner, args=(deciding,), daemon=True)
    planner.start()
    decided.recv()  # it has its cluster
    try:
        rows = asyncio.run(_measure(port, pid, here, decided))
        rows.insert(0, row("first paint, while its first views are made", first_s, "s", "<= 0.5"))
    finally:
        page.terminate()
        planner.terminate()
    print_rows(rows)


async def _measure(port: int, pid: int, page: Connection, planner: Connection) -> list[Row]:
    base = f"http://127.0.0.1:{port}"
    paints = [await _paint(base, f"{namespace_of(n)}-painter") for n in range(PAINTS)]
    whole = [await _paint(base, ADMIN) for _ in range(PAINTS)]
    quiet = await _during(pid, planner)
    async with AsyncExitStack() as stack:
        counts = [0] * VIEWERS
        viewers = [asyncio.create_task(_view(base, n, counts)) for n in range(VIEWERS)]
        stack.push_async_callback(_end, viewers)
        async with asyncio.timeout(DEADLINE_S):
            while not all(counts):  # noqa: ASYNC110 - each has its first part
                await asyncio.sleep(0.1)
        busy = await _during(pid, planner)
        delays = [await _event_delay(base, page, n) for n in range(EVENTS)]

    return [
        row("first paint, one namespace of 20", statistics.median(p[0] for p in paints), "s", "<= 0.5"),
        row("first paint, the whole cluster", statistics.median(p[0] for p in whole), "s", "<= 0.5"),
        row("size of it as sent, the whole cluster", max(p[1] for p in whole) / 1e3, "kB", "<= 200"),
        row(f"event to page, {VIEWERS} viewers, median", statistics.median(delays), "s", "<= 1"),
        row(f"event to page, {VIEWERS} viewers, largest", max(delays), "s"),
        row("page process, core without viewers", 100 * quiet["cores"], "% of a core"),
        row(f"page process, core with {VIEWERS} viewers", 100 * busy["cores"], "% of a core"),
        row(f"page process, memory that {VIEWERS} viewers add", busy["mb"] - quiet["mb"], "MB", "<= 50"),
        row("decision beside it, p99 without viewers", quiet["p99"], "s"),
        row(f"decision beside it, p99 with {VIEWERS} viewers", busy["p99"], "s"),
    ]


def row(name: str, value: float, unit: str, goal: str = "") -> Row:
    """Return a row of this benchmark, with the machine's load."""
    return Row(name=f"page: {name}", value=value, unit=unit, goal=goal, note=load())


async def _during(pid: int, planner: Connection) -> dict[str, float]:
    """Cost of the page's process and the planner's times, over a while."""
    planner.send(MEASURED_S)
    cpu_s, began_s = _cpu_s(pid), time.monotonic()
    await asyncio.sleep(MEASURED_S)
    cores = (_cpu_s(pid) - cpu_s) / (time.monotonic() - began_s)
    times = await asyncio.to_thread(planner.recv)
    return {"cores": cores, "mb": _resident_mb(pid), "p99": statistics.quantiles(times, n=100)[98]}


async def _paint(base: str, token: str) -> tuple[float, int]:
    """Seconds until the page is whole, and its size as it was sent."""
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
    async with aiohttp.ClientSession(auto_decompress=False, headers=headers) as client:
        await (await client.get(f"{base}/assets/page.css")).read()
        began_s = time.perf_counter()
        async with client.get(f"{base}/") as answer:
            answer.raise_for_status()
            body = await answer.read()
        return time.perf_counter() - began_s, len(body)


async def _view(base: str, number: int, counts: list[int]) -> None:
    token = f"{ADMIN if number % 10 == 0 else namespace_of(number)}-viewer-{number}"
    headers = {"Authorization": f"Bearer {token}"}
    limits = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, timeout=limits) as client:
        while True:
            async with client.get(f"{base}/live/now") as stream:
                if stream.status == 200:
                    async for _ in stream.content.iter_any():
                        counts[number] += 1
            await asyncio.sleep(1.0)


async def _event_delay(base: str, page: Connection, number: int) -> float:
    """Seconds from a job's new status to the part that tells it."""
    job = 2 + number * NAMESPACES
    headers = {"Authorization": f"Bearer {namespace_of(job)}-watcher"}
    async with aiohttp.ClientSession(headers=headers) as client, client.get(f"{base}/live/now") as stream:
        received = await stream.content.readuntil(b"\n\n")
        message = f"event number {number} of the benchmark"
        began_s = time.perf_counter()
        page.send((job, message))
        async with asyncio.timeout(DEADLINE_S):
            while message.encode() not in received:
                received = received[-1_000_000:] + await stream.content.readany()
        return time.perf_counter() - began_s


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# ---- the page's process, and the planner's ---------------------------------------------------------------------------


def _run_page(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    server = make_server(time.time)
    api = MemoryApi(server)
    async with AsyncExitStack() as stack:
        viewers = await stack.enter_async_context(ViewerAccess(api, clock=time.monotonic))
        source = ClusterSource(api, title="bench", read_snapshot=_refuse)
        watching = asyncio.create_task(source.run())
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        app = PageApp(source, ClusterAccess(viewers), PageSettings(hosts=LOOPBACK_HOSTS))
        await stack.enter_async_context(serving(app, listening))
        while source.documents() is None:  # noqa: ASYNC110 - once, at the start
            await asyncio.sleep(0.01)
        await asyncio.to_thread(pipe.send, (listening.getsockname()[1], os.getpid()))
        await asyncio.to_thread(pipe.recv)
        while not app.is_warm:  # noqa: ASYNC110 - once, at the start: before that the process is not ready
            await asyncio.sleep(0.1)
        await asyncio.to_thread(pipe.send, "ready")
        number = 0
        while not watching.done():
            if pipe.poll():
                job, message = pipe.recv()
                change_job(server, job, time.time(), message)
            number += 1
            if number % round(CHANGE_EVERY_S / 0.05) == 0:
                change_job(server, number % 1_000, time.time(), f"change number {number}")
            await asyncio.sleep(0.05)


async def _refuse(_api: Api, _title: str) -> Any:
    raise PermanentError("nobody plans here")


def _run_planner(pipe: Connection) -> None:
    """Answer each duration with the seconds of the plans that were made in it, each for one more web pod."""
    view, memo, number = at_rest(NODES, JOBS, SHAPES), Memo(), 0
    plan(view, OPEN, NOW_S, memo=memo)
    pipe.send("ready")
    with suppress(EOFError):
        while True:
            ends_s, times = time.monotonic() + pipe.recv(), []
            while time.monotonic() < ends_s:
                number += 1
                changed = with_one_more_web_pod(view, number)
                began_s = time.perf_counter()
                plan(changed, OPEN, NOW_S, memo=memo)
                times.append(time.perf_counter() - began_s)
                time.sleep(PAUSE_S)
            pipe.send(times)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - of the kernel
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:  # noqa: PTH123 - of the kernel
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
