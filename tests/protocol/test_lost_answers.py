"""A server applies a push, its answer is lost, and then the server dies: the batch counts once (M1, rules 5, 6 and 26).

The trainer lives and sends the same push again.  Everything that can happen from there on is explored.
"""

from __future__ import annotations

from collections import deque

import pytest

from tests.protocol.configs import CONFIGS
from tests.protocol.explore import Limits, Verdict, explore
from tests.protocol.model import JobModel
from tests.protocol.world import World

STATES = 4_000


class LaterModel(JobModel):
    """The job from `first` on."""

    first: World | None = None

    def initial(self) -> World:
        return self.first or super().initial()


@pytest.mark.timeout(600)  # seconds on a machine that is idle
@pytest.mark.parametrize("name", ["answer-crash", "keep-answer-crash", "pair-answer-crash"])
def test_a_push_counts_once_whose_answer_is_lost_before_its_server_dies(name):
    """With one copy it is rolled back or kept with its marks, with two the backup has it; END stays in reach."""
    model = LaterModel(CONFIGS[name])
    server, applied = first_unanswered(model, model.initial())
    model.first = after(model, applied, f"{server} CRASHES")

    report = explore(model, Limits(states=STATES, seconds=300))

    assert report.verdict in (Verdict.OK, Verdict.CUT_OFF), f"{name}: {report}"


def first_unanswered(model: JobModel, world: World) -> tuple[str, World]:
    """The nearest state in which a server has applied a push and its answer is lost, and that server."""
    seen, waiting = {world}, deque([world])
    while waiting:
        for move in model.moves(waiting.popleft()):
            text = str(move.label)
            if "its answer to t0 is LOST" in text:
                return text.partition(" ")[0], move.target
            if not move.is_fault and move.target not in seen:
                seen.add(move.target)
                waiting.append(move.target)
    raise AssertionError("no server applies a push")


def after(model: JobModel, world: World, label: str) -> World:
    """The state after the step of this label."""
    return next(move.target for move in model.moves(world) if str(move.label) == label)
