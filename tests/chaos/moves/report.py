"""What a campaign of resizes found: collected while it runs, then printed as text or as one document."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.campaign_totals import CampaignTotals
from tests.chaos.moves.failpoints import Step
from tests.chaos.moves.fault_matrix import FaultTarget, StepFault
from tests.chaos.moves.job_kinds import ChaosJobKind
from tests.chaos.moves.resize_plans import ResizePlan
from tests.chaos.moves.resizes import ServerResize
from tests.harness.faults import FaultKind, LandedFault


@dataclass(slots=True, kw_only=True)
class KindTotals:
    """Counts of one kind of job."""

    jobs: int = 0
    resizes: int = 0
    faults: int = 0
    made_good: int = 0  # servers lost while every bucket had two copies, without a roll-back
    roll_backs: int = 0  # under `afterLoss: Keep`: losses after which the other servers kept their buckets


@dataclass(slots=True, kw_only=True)
class MovesReport(CampaignTotals):
    """Totals of a campaign, and each fault that landed."""

    shares: dict[ChaosJobKind, KindTotals] = field(default_factory=lambda: defaultdict(KindTotals))
    landed: list[LandedFault[StepFault]] = field(default_factory=list)
    resizes: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)  # from the last fault to a resize's end
    unmet: Counter[Step] = field(default_factory=Counter)  # steps that no process reached before the resize ended
    graces_over: int = 0  # processes killed because their grace period was over


class CampaignLog:
    """Fills a report, and returns the faults that did not land to the plan."""

    def __init__(self, plan: ResizePlan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self.report = MovesReport()

    def put_back(self, faults: Sequence[StepFault]) -> None:
        """No process reached the steps of these faults."""
        self._plan.put_back(faults)
        self.report.unmet.update(fault.step for fault in faults)

    def add_losses(self, kind: ChaosJobKind, resize: ServerResize, made_good: int, problems: list[str]) -> None:
        """Servers lost while every bucket had two copies."""
        self.report.shares[kind].made_good += made_good
        for problem in problems:
            self.report.problems.append(f"{resize}: {problem}")
            self._say(f"PROBLEM {resize}: {problem}")

    def add_resize(
        self, kind: ChaosJobKind, resize: ServerResize, landed: Sequence[LandedFault[StepFault]], took_s: float
    ) -> None:
        """A resize that is over; the job has recovered from its faults."""
        self.report.shares[kind].resizes += 1
        self.report.shares[kind].faults += len(landed)
        self.report.resizes[resize.kind] += 1
        self.report.landed += landed
        self.report.took_s.append(took_s)
        total, faults = self.report.resizes.total(), len(self.report.landed)
        self._say(f"{total:4} {resize}: {len(landed)} faults, over {took_s:.1f} s after the last; {faults} so far")
        for one in landed:
            self._say(f"       {one.fault} ({one.target})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCounts:
    """What a campaign was asked for."""

    faults: int
    resizes: int
    seed: int


def missing(report: MovesReport, wanted: RequestedCounts) -> list[str]:
    """What was asked for and did not come about."""
    found = []
    if len(report.landed) < wanted.faults:
        found.append(f"{len(report.landed)} of {wanted.faults} faults")
    if report.resizes.total() < wanted.resizes:
        found.append(f"{report.resizes.total()} of {wanted.resizes} resizes")
    return found


def as_text(report: MovesReport, wanted: RequestedCounts, took_s: float) -> str:
    counts = Counter((one.fault.step, one.fault.target, one.fault.kind) for one in report.landed)
    lines = ["", "killed + stopped at" + "".join(f"{target:>12}" for target in FaultTarget) + f"{'not met':>12}"]
    for step in Step:
        cells = (
            f"{counts[step, target, FaultKind.KILL]} + {counts[step, target, FaultKind.STOP]}" for target in FaultTarget
        )
        lines.append(f"{step:19}" + "".join(f"{cell:>12}" for cell in cells) + f"{report.unmet[step]:12}")
    if report.took_s:
        median_s, longest_s = statistics.median(report.took_s), max(report.took_s)
        lines.append(
            f"from the last fault to the end of the resize: median {median_s:.1f} s, longest {longest_s:.1f} s"
        )
    resizes = ", ".join(f"{count} {kind}" for kind, count in sorted(report.resizes.items()))
    lines += [
        f"seed {wanted.seed}, {took_s / 60:.1f} minutes, {len(report.landed)} of {wanted.faults} faults",
        f"{report.resizes.total()} of {wanted.resizes} resizes: {resizes}",
        f"{report.jobs} jobs, {report.positions} positions, {report.pushes} pushes, {report.roll_backs} roll-backs",
        *(
            f"{kind}: {one.jobs} jobs, {one.resizes} resizes, {one.faults} faults, {one.roll_backs} roll-backs, "
            f"{one.made_good} losses made good by second copies"
            for kind, one in report.shares.items()
        ),
        f"{report.graces_over} leavers did not get away within their grace",
        f"{report.heads} checkpoints compared with their data state, {report.heads_missed} gone before they were read",
        *(f"MISSING {what}" for what in missing(report, wanted)),
        *(f"PROBLEM {problem}" for problem in report.problems),
        "every position exactly once in every checkpoint" if not report.problems else "the ledger is NOT in order",
    ]
    return "\n".join(lines)


def as_document(report: MovesReport, wanted: RequestedCounts, took_s: float) -> dict[str, Any]:
    """For `--json`."""
    return {
        "seed": wanted.seed,
        "took_s": round(took_s, 1),
        "wanted": {"faults": wanted.faults, "resizes": wanted.resizes},
        "faults": len(report.landed),
        "by_fault": dict(sorted(Counter(str(one.fault) for one in report.landed).items())),
        "kinds": {str(kind): asdict(one) for kind, one in report.shares.items()},
        "unmet": dict(sorted(report.unmet.items())),
        "resizes": dict(sorted(report.resizes.items())),
        "settled_s": [round(took, 2) for took in report.took_s],
        "graces_over": report.graces_over,
        "jobs": report.jobs,
        "positions": report.positions,
        "pushes": report.pushes,
        "roll_backs": report.roll_backs,
        "checkpoints": report.heads,
        "checkpoints_missed": report.heads_missed,
        "missing": missing(report, wanted),
        "problems": report.problems,
    }
