"""Every state that a model can reach, breadth first, so that the first counter-example is a shortest one.

A model gives its first state, the moves out of a state, and says which states are the END of the job.  Two questions
are asked.  Safety: does any move break an invariant (the model says so in `Move.violation`)?  Liveness, as "possible
progress": can END be reached from every state by moves that are not faults?  A state where it cannot is stuck.  That is
asked on the way, too: what is stuck among the states expanded so far stays so, and the walk is over.

A state is remembered by its 64-bit hash alone; a trace is rebuilt by walking again from the first state, which also
proves that the model is deterministic.  Two states with one hash would hide a part of the space: for two million states
the chance is below one in a million.

Not here: what a state is (`world`), which worlds are explored (`configs`).
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

State = TypeVar("State", bound=Hashable)

_STATES_BETWEEN_LOOKS: Final = 1024
_FIRST_SEARCH: Final = 1_000  # states that are expanded before it is first asked whether some state is stuck
_NEXT_SEARCH: Final = 1.25  # times as many, before it is asked again
_SECONDS_BETWEEN_LINES: Final = 5.0


class Move(NamedTuple, Generic[State]):
    """One step out of a state.  `label` is shown in traces by its `str`: cheap to make, dear to print, is fine."""

    label: object
    target: State
    is_fault: bool = False
    violation: str | None = None


class Model(Protocol[State]):
    def initial(self) -> State: ...

    def moves(self, state: State) -> Iterable[Move[State]]:
        """Always the same moves in the same order for equal states."""
        ...

    def is_end(self, state: State) -> bool: ...


class Verdict(StrEnum):
    OK = "ok"
    VIOLATED = "violated"
    STUCK = "stuck"
    CUT_OFF = "cut off"  # a limit was reached; nothing wrong so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    states: int = 1_000_000
    seconds: float = 600.0
    has_end: bool = True  # False: no state is END, and a state from which it is out of reach is not looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an exploration found.  `trace` leads from the first state to the violation or to the stuck state."""

    verdict: Verdict
    detail: str = ""
    trace: tuple[str, ...] = ()
    states: int = 0
    moves: int = 0
    ends: int = 0
    depth: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        size = f"states {self.states:>9,}  moves {self.moves:>10,}  depth {self.depth:>3}  ends {self.ends:>7,}"
        lines = [f"{self.verdict:9} {size}  {self.seconds:6.1f} s"]
        lines += [f"    {self.detail}"] if self.detail else []
        lines += [f"    {n:3d}. {step}" for n, step in enumerate(self.trace, 1)]
        return "\n".join(lines)


class NotDeterministicError(Exception):
    """The model answered differently when asked again: its states hide something that matters."""


class _Graph(Generic[State]):
    """States by number, in the order in which they were found; how each was found; the edges that are no faults."""

    def __init__(self, first: State) -> None:
        self.number_of = {hash(first): 0}
        self.parent, self.ordinal, self.level = array("i", [-1]), array("H", [0]), array("H", [0])
        self.sources, self.targets = array("i"), array("i")
        self.ends = bytearray(1)

    def __len__(self) -> int:
        return len(self.parent)

    def add(self, state: State, source: int, ordinal: int) -> tuple[int, bool]:
        """The number of this state, and whether it is new."""
        number = self.number_of.setdefault(hash(state), len(self.parent))
        if number < len(self.parent):
            return number, False
        self.parent.append(source)
        self.ordinal.append(ordinal)
        self.level.append(self.level[source] + 1)
        self.ends.append(0)
        return number, True

    def path_to(self, number: int) -> list[int]:
        ordinals: list[int] = []
        while number > 0:
            ordinals.append(self.ordinal[number])
            number = self.parent[number]
        return ordinals[::-1]

    def first_stuck(self, expanded: int) -> tuple[int | None, int]:
        """The first state that cannot reach END, and how many.  What is not expanded yet counts as if it could."""
        good = np.frombuffer(self.ends, dtype=np.uint8).astype(bool)
        good[expanded:] = True
        sources, targets = np.frombuffer(self.sources, np.int32), np.frombuffer(self.targets, np.int32)
        while True:
            found = sources[good[targets] & ~good[sources]]
            if not len(found):
                break
            good[found] = True
        bad = np.flatnonzero(~good)
        return (int(bad[0]) if len(bad) else None), len(bad)


def explore(
    model: Model[State], limits: Limits | None = None, *, progress: Callable[[str], None] | None = None
) -> Report:
    """Walks the whole space, or as much of it as `limits` allow, and stops at the first violation."""
    return _Exploration(model, limits or Limits(), progress or (lambda _: None)).run()


class _Exploration(Generic[State]):
    def __init__(self, model: Model[State], limits: Limits, progress: Callable[[str], None]) -> None:
        self.model, self.limits, self.progress = model, limits, progress
        self.began = self.looked = time.monotonic()
        first = model.initial()
        self.graph = _Graph(first)
        self.frontier = deque([first])
        self.expanded = self.moves = 0
        self.search_at = _FIRST_SEARCH

    def run(self) -> Report:
        while self.frontier and self.is_within_limits():
            broken = self.expand()
            if broken:
                path, violation = broken
                return self.report(Verdict.VIOLATED, violation, _replay(self.model, path))
            if self.expanded >= self.search_at and self.limits.has_end:
                self.search_at = int(self.expanded * _NEXT_SEARCH)
                if stuck := self.try_find_stuck():
                    return stuck
        if self.limits.has_end and (stuck := self.try_find_stuck()):
            return stuck
        if self.frontier:
            return self.report(Verdict.CUT_OFF, f"{len(self.frontier):,} states left to expand")
        return self.report(Verdict.OK)

    def try_find_stuck(self) -> Report | None:
        stuck, stuck_count = self.graph.first_stuck(self.expanded)
        if stuck is None:
            return None
        detail = f"END cannot be reached without faults from {stuck_count:,} of {len(self.graph):,} states"
        return self.report(Verdict.STUCK, detail, _replay(self.model, self.graph.path_to(stuck)))

    def expand(self) -> tuple[list[int], str] | None:
        """Takes every move out of the next state.  Answers the path to a violation and what is violated, or None."""
        graph, state, source = self.graph, self.frontier.popleft(), self.expanded
        self.expanded += 1
        if self.model.is_end(state):
            graph.ends[source] = 1
            return None
        for ordinal, move in enumerate(self.model.moves(state)):
            self.moves += 1
            if move.violation is not None:
                return [*graph.path_to(source), ordinal], move.violation
            number, is_new = graph.add(move.target, source, ordinal)
            if is_new:
                self.frontier.append(move.target)
            if not move.is_fault and number != source:
                graph.sources.append(source)
                graph.targets.append(number)
        return None

    def is_within_limits(self) -> bool:
        if len(self.graph) >= self.limits.states:
            return False
        if self.expanded % _STATES_BETWEEN_LOOKS or not self.expanded:
            return True
        now = time.monotonic()
        if now - self.looked > _SECONDS_BETWEEN_LINES:
            self.looked = now
            self.progress(f"{len(self.graph):,} states, {len(self.frontier):,} to expand, {now - self.began:.0f} s")
        return now - self.began <= self.limits.seconds

    def report(self, verdict: Verdict, detail: str = "", trace: tuple[str, ...] = ()) -> Report:
        return Report(
            verdict=verdict,
            detail=detail,
            trace=trace,
            states=len(self.graph),
            moves=self.moves,
            ends=sum(self.graph.ends),
            depth=max(self.graph.level),
            seconds=time.monotonic() - self.began,
        )


def _replay(model: Model[State], ordinals: list[int]) -> tuple[str, ...]:
    """The labels of these moves, found by taking them again."""
    state, labels = model.initial(), []
    for ordinal in ordinals:
        moves = list(model.moves(state))
        if ordinal >= len(moves):
            raise NotDeterministicError(f"after {labels}: move {ordinal} of {len(moves)}")
        labels.append(str(moves[ordinal].label))
        state = moves[ordinal].target
    return tuple(labels)
