"""Packing by the scheduler of 2017 for pods that only arrive: the cheap filter of the search, a hundred times
cheaper.

Kubernetes 1.6 adds three whole scores of 0 to 10 (room left, balance of CPU and memory, spreading of replicated pods)
and takes one of the best nodes.  Time, back-off and deletion are not here: a mix that passes is checked in the
simulator (`verify`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBatch:
    """`count` equal pods of one owner.  A Job's pods are not spread, those of a ReplicaSet are."""

    count: int
    cpu_milli: int
    memory_mib: int
    is_spread: bool


def pack(
    cpu_milli: Integers, memory_mib: Integers, batches: Sequence[JobBatch], rng: np.random.Generator
) -> tuple[int, ...]:
    """Place the batches one after the other; return how many pods of each found a node."""
    used_cpu, used_memory = np.zeros_like(cpu_milli), np.zeros_like(memory_mib)
    placed = []
    for batch in batches:
        mine = np.zeros_like(cpu_milli)
        for _ in range(batch.count):
            fits = (used_cpu + batch.cpu_milli <= cpu_milli) & (used_memory + batch.memory_mib <= memory_mib)
            if not fits.any():
                break
            scores = score(cpu_milli, memory_mib, used_cpu + batch.cpu_milli, used_memory + batch.memory_mib)
            if batch.is_spread and (most := int(mine.max())):
                scores = scores + (most - mine) * 10 // most
            scores[~fits] = -1
            node = int(rng.choice(np.flatnonzero(scores == scores.max())))
            used_cpu[node] += batch.cpu_milli
            used_memory[node] += batch.memory_mib
            mine[node] += 1
        placed.append(int(mine.sum()))
    return tuple(placed)


def score(cpu_milli: Integers, memory_mib: Integers, used_cpu: Integers, used_memory: Integers) -> Integers:
    """LeastRequested plus BalancedResourceAllocation of Kubernetes 1.6, each in whole points of 0 to 10."""
    cpu = np.clip((cpu_milli - used_cpu) * 10 // cpu_milli, 0, 10)
    memory = np.clip((memory_mib - used_memory) * 10 // memory_mib, 0, 10)
    gap = np.abs(used_cpu / cpu_milli - used_memory / memory_mib)
    points: Integers = (cpu + memory) // 2 + (10 - gap * 10).astype(np.int64)
    return points
