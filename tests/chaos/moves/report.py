"""A campaign's outcome for people and as one document."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tests.chaos.moves.failpoints import Step
from tests.chaos.moves.fault_matrix import How, Victim
from tests.chaos.moves.notes import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a campaign was asked for."""

    faults: int
    resizes: int
    seed: int


def missing(report: Report, wanted: Wanted) -> list[str]:
    """What was asked for and did not come about."""
    found = []
    if len(report.landed) < wanted.faults:
        found.append(f"{len(report.landed)} of {wanted.faults} faults")
    if report.resizes.total() < wanted.resizes:
        found.append(f"{report.resizes.total()} of {wanted.resizes} resizes")
    return found


def as_text(report: Report, wanted: Wanted, took_s: float) -> str:
    counts = Counter((one.blow.step, one.blow.victim, one.blow.how) for one in report.landed)
    lines = ["", "killed + stopped at" + "".join(f"{victim:>12}" for victim in Victim) + f"{'not met':>12}"]
    for step in Step:
        cells = (f"{counts[step, victim, How.KILL]} + {counts[step, victim, How.STOP]}" for victim in Victim)
        lines.append(f"{step:19}" + "".join(f"{cell:>12}" for cell in cells) + f"{report.unmet[step]:12}")
    if report.took_s:
        median_s, longest_s = statistics.median(report.took_s), max(report.took_s)
        lines.append(f"from the last blow to the end of the resize: median {median_s:.1f} s, longest {longest_s:.1f} s")
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


def as_document(report: Report, wanted: Wanted, took_s: float) -> dict[str, Any]:
    """For `--json`."""
    return {
        "seed": wanted.seed,
        "took_s": round(took_s, 1),
        "wanted": {"faults": wanted.faults, "resizes": wanted.resizes},
        "faults": len(report.landed),
        "by_blow": dict(sorted(Counter(str(one.blow) for one in report.landed).items())),
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
