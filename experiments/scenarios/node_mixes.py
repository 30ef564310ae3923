"""Node mixes: how many nodes of which size the cluster of 2017 may have had.

They are data (`experiments/data/node_mixes.json`) with the seed that found them; see `calibration.mix_search`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.domain import Node, NodeName, Resources
from experiments.errors import RefusedInputError

MIXES: Final = Path(__file__).parent.parent / "data" / "node_mixes.json"
NODES: Final = 133
CORES: Final = 2_348
MEMORY_MIB: Final = 13_665_210 * 10**6 // 2**20
SYSTEM_CPU_MILLI: Final = 380
"""On each node: 2.15 % of all cores were requested before anything was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """`counts` are (nodes, cores of each)."""

    name: str
    counts: tuple[tuple[int, int], ...]

    def cores(self) -> list[int]:
        """Cores of each node."""
        return [cores for count, cores in self.counts for _ in range(count)]

    def text(self) -> str:
        """`27x8, 35x16`."""
        return ", ".join(f"{count}x{cores}" for count, cores in self.counts)

    def nodes(self) -> list[Node]:
        """The nodes, named by number; memory in proportion to cores, with room for 110 pods."""
        return [
            Node(
                name=NodeName(f"n{number:03d}"),
                allocatable=Resources(cpu_milli=1_000 * cores, memory_bytes=mib * 2**20, extended=(("pods", 110),)),
            )
            for number, (cores, mib) in enumerate(zip(self.cores(), memory_mib_of(self), strict=True))
        ]


def memory_mib_of(mix: Mix) -> list[int]:
    """Memory of each node, rounded down: in proportion to its cores."""
    return [MEMORY_MIB * cores // CORES for cores in mix.cores()]


def read_mixes(file: Path = MIXES) -> tuple[Mix, ...]:
    """Return the mixes, checked against the published sums.

    Raises:
        RefusedInputError: the file is missing, of another shape, or a mix has other sums than the cluster of 2017.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        hint = "find mixes with `python -m experiments.calibration.mix_search`"
        raise RefusedInputError(file, "", f"the node mixes cannot be read: {error}", hint) from error
    entries = document.get("mixes") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise RefusedInputError(file, "mixes", "is not a list of mixes")
    return tuple(parse_mix(file, f"mixes[{number}]", entry) for number, entry in enumerate(entries))


def parse_mix(file: Path, path: str, entry: Any) -> Mix:
    """Return one mix with the published sums."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise RefusedInputError(file, f"{path}.name", "is missing")
    pairs = entry.get("nodes")
    if not isinstance(pairs, list) or not all(is_pair(pair) for pair in pairs):
        raise RefusedInputError(file, f"{path}.nodes", "is not a list of [nodes, cores]", "integers above 0")
    mix = Mix(name=entry["name"], counts=tuple((count, cores) for count, cores in pairs))
    if len(mix.cores()) != NODES or sum(mix.cores()) != CORES:
        problem = f"{len(mix.cores())} nodes and {sum(mix.cores())} cores"
        raise RefusedInputError(file, f"{path}.nodes", problem, f"{NODES} nodes and {CORES} cores were published")
    return mix


def is_pair(value: Any) -> bool:
    """True if a JSON value is a pair of integers above 0."""
    return isinstance(value, list) and len(value) == 2 and all(type(part) is int and part > 0 for part in value)
