"""Cores and memory that the pods of a run use: of each one's process and all that it started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import psutil

from autoscaler.cli.kubernetes.top_lines import Usage, UsedAmounts
from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.local.control_plane.pod_annotations import PID

_MEASURED_S: Final = 0.5


async def usage_of_pods(pods: Iterable[Raw]) -> Usage:
    """Resources that pods and their nodes use, over half a second; a pod without a process is left out."""
    pids: dict[str, int] = {}
    nodes: dict[str, str] = {}
    for raw in pods:
        told = text(raw, "metadata", "annotations", PID)
        if told.isdecimal():
            name = f"{text(raw, 'metadata', 'namespace')}/{text(raw, 'metadata', 'name')}"
            pids[name], nodes[name] = int(told), text(raw, "spec", "nodeName")
    before = {name: _cpu_s(pid) for name, pid in pids.items()}
    await asyncio.sleep(_MEASURED_S)
    used: dict[str, UsedAmounts] = {}
    of_nodes: dict[str, UsedAmounts] = {}
    for name, pid in pids.items():
        grown_s = max(0.0, sum(_grown(before[name], _cpu_s(pid))))
        amounts = UsedAmounts(cpu_milli=round(1000 * grown_s / _MEASURED_S), memory_bytes=_memory_bytes(pid))
        used[name] = amounts
        of_nodes[nodes[name]] = amounts if nodes[name] not in of_nodes else of_nodes[nodes[name]].plus(amounts)
    return Usage(nodes=of_nodes, pods=used)


def _grown(before: Mapping[int, float], after: Mapping[int, float]) -> list[float]:
    return [seconds - before.get(pid, 0.0) for pid, seconds in after.items()]


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _cpu_s(pid: int) -> dict[int, float]:
    found = {}
    for one in _family(pid):
        with suppress(psutil.Error):
            times = one.cpu_times()
            found[one.pid] = times.user + times.system
    return found


def _memory_bytes(pid: int) -> int:
    total = 0
    for one in _family(pid):
        with suppress(psutil.Error):
            total += one.memory_info().rss
    return total
