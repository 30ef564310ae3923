"""The ledger job of a campaign: short times, so that a fault and its recovery take seconds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.ledger import PROGRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerShape:
    """What both kinds of campaign set; each has times of its own."""

    size: int = 400
    epochs: int
    batch_size: int = 8
    step_s: float
    buckets: int
    trainers: int = 2
    servers: int = 2
    checkpoint_every_s: float
    leader_ttl_s: int
    reconnect_s: float
    lease_floor_s: float = 3.0
    grace_s: float
    backoff_limit: int = 20

    def trainer(self, diaries: Path) -> tuple[str, ...]:
        """The command of one that writes its diary there."""
        return (
            sys.executable,
            str(PROGRAM),
            f"--size={self.size}",
            f"--epochs={self.epochs}",
            f"--batch-size={self.batch_size}",
            f"--step-s={self.step_s}",
            f"--buckets={self.buckets}",
            f"--diaries={diaries}",
        )
