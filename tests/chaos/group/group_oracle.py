"""What a group's checkpoints and diaries have to say, computed from the order of its records alone (M1, M10)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from master.api.checkpoints.manifest import Manifest
from master.api.checkpoints.storage import Storage
from master.api.group_shares import step_positions, total_steps
from master.api.positions import PositionSet
from tests.programs.group_ledger import DATASET, next_link
from trainer_sdk.group.replica_files import LoadedState, read_copy
from trainer_sdk.record_order import RecordOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHead:
    """A committed checkpoint, as it was read."""

    manifest: Manifest
    loaded: LoadedState
    seen_at_s: float


def read_group_head(storage: Storage, manifest: Manifest, seen_at_s: float) -> GroupHead:
    return GroupHead(manifest=manifest, loaded=read_copy(storage, manifest.files), seen_at_s=seen_at_s)


class GroupOracle:
    """The exact part of a replica after any number of steps."""

    def __init__(self) -> None:
        self._order = RecordOrder(DATASET)
        self._known: dict[PositionSet, tuple[int, np.ndarray, np.ndarray]] = {}

    def replica(self, step: int, skipped: PositionSet) -> tuple[np.ndarray, np.ndarray]:
        """Counts and chain after `step` steps without the skipped positions."""
        done, counts, chain = self._known.get(skipped, (0, None, None))
        if counts is None or done > step:
            done, counts, chain = 0, np.zeros(DATASET.size, dtype=np.int64), np.zeros(32, dtype=np.uint8)
        counts = counts.copy()
        for number in range(done, step):
            counted = np.zeros(DATASET.size, dtype=np.int64)
            if trained := step_positions(DATASET, number) - skipped:
                np.add.at(counted, self._order.records(trained), 1)
            counts += counted
            chain = next_link(chain, counted)
        self._known[skipped] = step, counts, chain
        return counts, chain

    def check_heads(self, heads: list[GroupHead]) -> list[str]:
        """What is wrong in these checkpoints of one job, oldest first; the last one has to be complete."""
        problems, last = [], 0
        for head in heads:
            loaded, step = head.loaded, head.loaded.state.step
            counts, chain = self.replica(step, loaded.skipped)
            arrays = loaded.captured.arrays
            if not np.array_equal(arrays["counts"], counts):
                wrong = np.flatnonzero(arrays["counts"] != counts)
                problems.append(f"checkpoint of step {step}: records {wrong[:10].tolist()} are not counted once")
            if not np.array_equal(arrays["chain"], chain):
                problems.append(f"checkpoint of step {step}: its steps are not those of the order")
            if step < last:
                problems.append(f"checkpoint of step {step} came after one of step {last}")
            last = step
        if last != total_steps(DATASET):
            problems.append(f"the last checkpoint is of step {last} of {total_steps(DATASET)}")
        return problems


@dataclass(slots=True, kw_only=True)
class Diaries:
    """What the members of a job wrote down, by time."""

    lines: list[tuple[float, int, int, str, int]]  # time (monotonic, s), generation, step, digest, ordinal

    def check_agreement(self) -> list[str]:
        """Replicas that have done the same step of one generation hold the same bits."""
        digests: dict[tuple[int, int], set[str]] = defaultdict(set)
        for _, generation, step, digest, _ in self.lines:
            digests[generation, step].add(digest)
        return [
            f"generation {generation}, step {step}: {len(held)} different replicas"
            for (generation, step), held in digests.items()
            if len(held) > 1
        ]

    def writers(self) -> set[int]:
        """Ordinals of those that have done a step."""
        return {line[4] for line in self.lines}

    def pause_after(self, at_s: float) -> float | None:
        """From this moment to the next step that anybody completed (s); None: there was none."""
        later = [line[0] for line in self.lines if line[0] > at_s]
        return min(later) - at_s if later else None

    def pauses(self) -> list[float]:
        """Of each generation but the first: from the last step before to its first step at a member of both (s)."""
        found: dict[int, float] = {}
        last: dict[int, tuple[float, int]] = {}
        for time_s, generation, _, _, ordinal in self.lines:
            before = last.get(ordinal)
            if before is not None and before[1] != generation:
                found[generation] = min(found.get(generation, np.inf), time_s - before[0])
            last[ordinal] = time_s, generation
        return list(found.values())


def read_diaries(folder: Path) -> Diaries:
    """All diaries of a job; a last line that was cut short counts as none."""
    lines = []
    for file in folder.iterdir():
        for line in file.read_text().split("\n")[:-1]:
            time_s, generation, step, digest = line.split()
            lines.append((float(time_s), int(generation), int(step), digest, int(file.name)))
    return Diaries(lines=sorted(lines))
