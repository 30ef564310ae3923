"""Search for node sizes that reproduce the static arm of 2017.

    python -m experiments.calibration.mix_search --seed 2017

The node shapes of that cluster are not published, only their sums: 133 nodes, 2,348 cores, 13,665,210 MB.  A mix is
drawn (which sizes, how many of each), adjusted to the sums, and kept when the static arm packs as published: in case
2 every pod beside 400 web pods (82.90 %), in case 1 the plateau of 88.66 % with 346.8 trainers.  Of all that pass,
those that differ most are taken, so that a figure given on all of them is a range instead of one sample.

Assumed, since nothing is published: memory in proportion to cores (it never binds: trainers ask for a quarter of it),
and the 2.15 % of CPU that was requested before anything was submitted spread evenly, 380m on each node.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from experiments.calibration.packing import JobBatch, pack
from experiments.calibration.verify import EXPECTED, is_like_2017, simulate_static
from experiments.scenarios.node_mixes import CORES, MIXES, NODES, SYSTEM_CPU_MILLI, Mix, memory_mib_of

SIZES: Final = (8, 10, 12, 16, 18, 20, 24, 28, 32, 36, 40, 48)
PLATEAU_PERCENT: Final = 88.66
PLATEAU_TRAINERS: Final = 346.8
TOLERANCE_PERCENT: Final = 0.6
"""Points: the published passes of the plateau themselves lie 0.7 points apart."""
TOLERANCE_TRAINERS: Final = 3.5
PASSES: Final = 4

KNOWN: Final = (
    Mix(name="", counts=((27, 8), (35, 16), (48, 18), (1, 20), (2, 24), (20, 32))),
    Mix(name="", counts=((12, 8), (38, 12), (30, 16), (16, 18), (7, 20), (9, 24), (21, 32))),
)
"""Found by hand before the search was written; verified in the simulator like the others."""

WEB: Final = JobBatch(count=400, cpu_milli=3_000, memory_mib=3_072, is_spread=True)
SERVERS: Final = JobBatch(count=10, cpu_milli=4_000, memory_mib=5_120, is_spread=True)
MASTER: Final = JobBatch(count=1, cpu_milli=1_000, memory_mib=300, is_spread=True)
TOTAL_CPU_MILLI: Final = CORES * 1_000


def trainers(count: int) -> JobBatch:
    """Trainers of one job; a Job's pods are not spread."""
    return JobBatch(count=count, cpu_milli=5_000, memory_mib=8_192, is_spread=False)


CASE_1: Final = (SERVERS, MASTER, trainers(60)) * 20
CASE_2: Final = (WEB, *(SERVERS, MASTER, trainers(15)) * 6)


def search(seed: int, *, draws: int, wanted: int) -> list[tuple[Mix, dict[str, float]]]:
    """Return `wanted` mixes that pass, the first one found and then always the one farthest from those taken."""
    rng = np.random.default_rng(seed)
    passed: list[tuple[Mix, dict[str, float]]] = []
    for _ in range(draws):
        mix = draw(rng)
        if mix is not None and (figures := evaluate(mix, rng)) is not None:
            passed.append((mix, figures))
    taken = passed[:1]
    while len(taken) < min(wanted, len(passed)):
        taken.append(max(passed, key=lambda found: min(distance(found[0], other) for other, _ in taken)))
    return taken


def draw(rng: np.random.Generator) -> Mix | None:
    """Draw sizes and shares and adjust them to both sums; None if two sizes cannot do so."""
    sizes = np.sort(rng.choice(SIZES, size=int(rng.integers(3, 8)), replace=False))
    counts = rng.multinomial(NODES, rng.dirichlet(np.ones(len(sizes))))
    for _ in range(400):
        missing = CORES - int((counts * sizes).sum())
        if missing == 0:
            return Mix(name="", counts=tuple((int(n), int(s)) for n, s in zip(counts, sizes, strict=True) if n))
        moves = [
            (abs(missing - int(sizes[b] - sizes[a])), float(rng.random()), a, b)
            for a in range(len(sizes))
            for b in range(len(sizes))
            if a != b and counts[a] > 0
        ]
        _, _, a, b = min(moves)
        counts[a] -= 1
        counts[b] += 1
    return None


def evaluate(mix: Mix, rng: np.random.Generator) -> dict[str, float] | None:
    """Return what the static arm packs on a mix, mean over passes; None where it does not reproduce 2017."""
    cores = np.array(mix.cores(), dtype=np.int64)
    cpu_milli, memory_mib = cores * 1_000 - SYSTEM_CPU_MILLI, np.array(memory_mib_of(mix), dtype=np.int64)
    plateaus, counts = [], []
    for _ in range(PASSES):
        if pack(cpu_milli, memory_mib, CASE_2, rng) != tuple(batch.count for batch in CASE_2):
            return None
        placed = pack(cpu_milli, memory_mib, CASE_1, rng)
        plateaus.append(percent(CASE_1, placed))
        counts.append(sum(placed[2::3]))
        if abs(plateaus[0] - PLATEAU_PERCENT) > 2 * TOLERANCE_PERCENT:
            return None
    seen = {"plateau_percent": round(float(np.mean(plateaus)), 2), "plateau_trainers": float(np.mean(counts))}
    is_near = abs(seen["plateau_percent"] - PLATEAU_PERCENT) <= TOLERANCE_PERCENT
    return seen if is_near and abs(seen["plateau_trainers"] - PLATEAU_TRAINERS) <= TOLERANCE_TRAINERS else None


def percent(batches: Sequence[JobBatch], placed: Sequence[int]) -> float:
    """Utilisation in percent of all cores, system pods included."""
    used = sum(batch.cpu_milli * count for batch, count in zip(batches, placed, strict=True))
    return 100 * (used + NODES * SYSTEM_CPU_MILLI) / TOTAL_CPU_MILLI


def distance(a: Mix, b: Mix) -> int:
    """Nodes that one mix would have to exchange to become the other."""
    mine, theirs = ({size: count for count, size in mix.counts} for mix in (a, b))
    return sum(abs(mine.get(size, 0) - theirs.get(size, 0)) for size in SIZES) // 2


def main() -> None:
    """Write the mixes that pass the filter and then the simulator to `experiments/data/node_mixes.json`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":", 1)[0])
    parser.add_argument("--seed", type=int, default=2017)
    parser.add_argument("--draws", type=int, default=1_500)
    parser.add_argument("--candidates", type=int, default=8, help="that go into the simulator")
    parser.add_argument("--wanted", type=int, default=5)
    given = parser.parse_args()
    kept: list[dict[str, object]] = []
    for mix, filtered in [(known, {}) for known in KNOWN] + search(
        given.seed, draws=given.draws, wanted=given.candidates
    ):
        seen = simulate_static(mix, given.seed, passes=PASSES)
        verdict = "kept" if is_like_2017(seen) and len(kept) < given.wanted else "not kept"
        print(f"{mix.text()}: filter {filtered or 'known'}, simulator {seen}: {verdict}")
        if verdict == "kept":
            nodes = [list(pair) for pair in mix.counts]
            kept.append({"name": f"mix-{len(kept) + 1}", "nodes": nodes, "filter": filtered, "simulator": seen})
    document = {
        "found_by": "python -m experiments.calibration.mix_search",
        "seed": given.seed,
        "draws": given.draws,
        "expected": EXPECTED,
        "mixes": kept,
    }
    MIXES.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
