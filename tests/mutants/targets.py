"""Which modules are mutated, and how the sample is drawn (pure but for reading the sources)."""

from __future__ import annotations

import random
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
LEFT_OUT: Final = ("autoscaler/clusters/kubernetes/api/memory/",)  # a test's stand-in, held by the contract tests


def target_files(root: Path) -> Iterator[str]:
    """Paths below the root, sorted within each pattern."""
    for pattern in TARGETS:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if not name.startswith(LEFT_OUT):
                yield name


def all_mutants(root: Path, only: str = "") -> list[tuple[Mutant, bytes]]:
    """Every fault that can be planted, with the source that it goes into; `only` is a part of the path."""
    found = []
    for path in target_files(root):
        if only in path:
            source = (root / path).read_bytes()
            found += [(mutant, source) for mutant in mutants_of(path, source)]
    return found


def sample(mutants: Sequence[tuple[Mutant, bytes]], *, size: int, seed: int) -> list[Mutant]:
    """So many that compile, each as likely as any other; the same for the same seed and sources, in order of files."""
    order = list(range(len(mutants)))
    random.Random(seed).shuffle(order)
    drawn = list(islice((number for number in order if _compiles(mutants[number][0].apply(mutants[number][1]))), size))
    return [mutants[number][0] for number in sorted(drawn)]


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
