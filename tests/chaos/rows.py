"""What a ledger's sparse tables must hold, row by row, and what trainers that pulled rows must have seen.

Exact like the rest of the ledger: a push that was lost or applied twice on the way of a row (ahead of its bucket, as a
part of the difference, from a checkpoint, on a second copy) leaves a sum that no set of positions has.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tests.chaos.ledger import Head, Saw, program


def check_rows(head: Head) -> list[str]:
    """What in this checkpoint's rows does not agree with its data state; nothing where there are no rows."""
    if "sums" not in head.tables:
        return []
    told, problems = f"checkpoint {head.manifest.id}", []
    sums = head.tables["sums"]
    wrong = np.flatnonzero((sums != program.sums(head.trained, len(sums))).any(axis=1))
    if len(wrong):
        found = f"row {wrong[0]} was written {sums[wrong[0], 0]} times"
        problems.append(f"{told}: {len(wrong)} rows hold other positions than the data state: {found}")
    firsts = np.zeros_like(head.tables["firsts"])
    firsts[head.trained] = 1
    odd = np.flatnonzero((head.tables["firsts"] != firsts).any(axis=1))
    if len(odd):
        problems.append(f"{told}: {len(odd)} positions are not in their row exactly once, as {odd[0]}")
    return problems


def check_looks(heads: list[Head], diaries: Iterable[Saw]) -> list[str]:
    """Rows that were pulled hold all that was in the head of that time, and nothing twice."""
    problems = []
    for line in diaries:
        ids, values = line.looked
        told = f"the pull for {line.positions} by {line.trainer}"
        if ((values != 0) & (values != 1)).any():
            problems.append(f"{told} saw a row that was written twice")
        before = [head for head in heads if head.seen_at_s < line.pulled_at_s]
        lacking = ids[values == 0]
        if before and len(lacking) and (before[-1].tables["firsts"][lacking] != 0).any():
            problems.append(f"{told} saw rows without checkpoint {before[-1].manifest.id}, which was head")
    return problems
