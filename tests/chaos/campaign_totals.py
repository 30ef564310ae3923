"""What a campaign's jobs were found to be, added up; every job is judged by its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.head_watch import HeadWatch
from tests.chaos.ledger import read_diaries, verdict
from tests.chaos.rows import check_looks, check_rows


@dataclass(slots=True, kw_only=True)
class CampaignTotals:
    """`problems` empty: every promise held."""

    problems: list[str] = field(default_factory=list)
    jobs: int = 0
    heads: int = 0
    heads_missed: int = 0
    pushes: int = 0
    roll_backs: int = 0
    positions: int = 0
    quarantined: int = 0

    def judge(self, job: str, watch: HeadWatch, diaries: Path, *, keeps: bool = False) -> str:
        """Takes in a job that has ended; a line about it.  `keeps`: after a loss the others keep what they have."""
        saw = read_diaries(diaries)
        found = verdict(watch.heads, saw, keeps=keeps)
        found += [problem for head in watch.heads for problem in check_rows(head)]
        found += check_looks(watch.heads, saw)
        self.problems += [f"{job}: {problem}" for problem in found]
        if not watch.heads:
            return "no checkpoint"
        last = watch.heads[-1].manifest
        self.heads += len(watch.heads)
        self.heads_missed += watch.missed
        self.pushes += len(saw)
        self.roll_backs += last.lineage - 1
        self.positions += len(last.data)
        self.quarantined += len(last.quarantine)
        read = f"{len(watch.heads)} checkpoints read, lineage {last.lineage}"
        return f"{read}, {len(saw)} pushes, {len(found)} problems"
