"""Interface of an arm on a real control plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from experiments.arms.pass_setup import JobSubmission
from tests.harness.processes import Program


class Arm(Protocol):
    """The system that handles the scenario."""

    @property
    def programs(self) -> Mapping[str, Program]:
        """Those that the arm started, by name."""
        ...

    async def submit(self, submission: JobSubmission) -> None:
        """The job comes."""
        ...

    async def run(self) -> None:
        """The arm's background work, from the scenario's zero on, until cancelled."""
        ...

    def evictions(self) -> Mapping[str, int]:
        """Trainers made to leave so far, by whom as the arm counted; empty: it does not count."""
        ...
