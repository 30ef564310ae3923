"""Which modules are mutated, and how the sample is drawn (pure but for reading the sources)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant, mutants_of

TARGETS: Final = (
    "master/job/**/*.py",
    "master/*.py",
    "trainer_sdk/protocol/**/*.py",
    "trainer_sdk/pserver/**/*.py",
    "autoscaler/planner/**/*.py",
    "autoscaler/clusters/kubernetes/**/*.py",
)
LEFT_OUT: Final = ("autoscaler/clusters/kubernetes/memory_api/",)  # a test's stand-in, held by the contract tests


def target_files(root: Path) -> Iterator[str]:
    """Paths below the root, sorted within each pattern."""
    for pattern in TARGETS:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if not name.startswith(LEFT_OUT):
                yield name


def all_mutants(root: Path) -> list[tuple[Mutant, bytes]]:
    """Every fault that can be planted, with the source that it goes into."""
    found = []
    for path in target_files(root):
        source = (root / path).read_bytes()
        found += [(mutant, source) for mutant in mutants_of(path, source)]
    return found


def sample(mutants: Sequence[tuple[Mutant, bytes]], *, size: int, seed: int) -> list[Mutant]:
    """So many that compile, each as likely as any other, in the order given.

    A mutant's place in the draw hangs on the seed and its own key alone: another version of the sources, or a part of
    them, has the same draw as far as it holds the same mutants.
    """
    order = sorted(range(len(mutants)), key=lambda number: _lot(mutants[number][0], seed))
    drawn = islice((number for number in order if _compiles(mutants[number][0].apply(mutants[number][1]))), size)
    return [mutants[number][0] for number in sorted(drawn)]


def _lot(mutant: Mutant, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
