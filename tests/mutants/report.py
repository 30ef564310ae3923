"""The score of a run, and the survivors with a reason each (pure but for reading the table of reasons)."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from tests.mutants.operators import Mutant
from tests.mutants.trial import Outcome, Verdict

OF_A_TRIAL: Final = ("verdict", "by", "tests", "took_s", "commit")
REASONS: Final = Path(__file__).parent / "survivors.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a mutant may survive: it does what the product does (equivalent), or nobody asks for what it changes."""

    reason: str
    is_equivalent: bool


def read_reasons(file: Path = REASONS) -> dict[str, Reason]:
    """By the mutant's key."""
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        key: Reason(reason=reason, is_equivalent=kind == "equivalent")
        for kind in ("equivalent", "tolerated")
        for key, reason in table.get(kind, {}).items()
    }


def score(outcomes: Sequence[Outcome], reasons: Mapping[str, Reason]) -> float:
    """The killed, as a share of those that are not equivalent."""
    killed = sum(outcome.is_killed for outcome in outcomes)
    equivalent = sum(
        not outcome.is_killed and (reason := reasons.get(outcome.mutant.key)) is not None and reason.is_equivalent
        for outcome in outcomes
    )
    return killed / max(1, len(outcomes) - equivalent)


def merged(kept: Sequence[Outcome], tried: Sequence[Outcome], drawn: Sequence[Mutant]) -> list[Outcome]:
    """The newest that is known of each mutant of the draw; what was tried of other draws falls out.

    A later run that tried fewer tests than a mutant survived before does not take its verdict away.
    """
    known = {one.mutant.key: one for one in kept}
    for one in tried:
        before = known.get(one.mutant.key)
        said_nothing = one.verdict in {Verdict.UNREACHED, Verdict.OUT_OF_TIME}
        if before is None or before.is_killed or not said_nothing:
            known[one.mutant.key] = one
    return [replace(known[mutant.key], mutant=mutant) for mutant in drawn if mutant.key in known]


def document(outcomes: Sequence[Outcome], *, seed: int, drawn: int) -> str:
    """What `docs/reports/mutants.json` holds: every mutant that was tried and what became of it, one a line."""
    lines = [
        json.dumps({**asdict(one.mutant), **{name: getattr(one, name) for name in OF_A_TRIAL}}) for one in outcomes
    ]
    return f'{{"seed": {seed}, "drawn": {drawn}, "outcomes": [\n' + ",\n".join(lines) + "\n]}\n"


def outcomes_of(text: str) -> list[Outcome]:
    """The outcomes of such a document."""
    return [
        Outcome(
            mutant=Mutant(**{name: one[name] for name in Mutant.__slots__}),
            **{**{name: one[name] for name in OF_A_TRIAL}, "verdict": Verdict(one["verdict"])},
        )
        for one in json.loads(text)["outcomes"]
    ]


def page(outcomes: Sequence[Outcome], reasons: Mapping[str, Reason], *, seed: int, drawn: int, total: int) -> str:
    """`docs/reports/mutants.md`."""
    survivors = [one for one in outcomes if not one.is_killed]
    commits = ", ".join(sorted({one.commit for one in outcomes}))
    lines = [
        "# Mutants: faults planted to see whether a test notices",
        "",
        f"Made by `make mutants`: {len(outcomes)} tried of {drawn} mutants drawn with seed {seed} out of {total} that",
        "could be planted in the decisions and their shells (`tests/mutants/targets.py`). Each ran against the tests",
        "that reach its function: those of one process, and where none of these noticed, those of real processes; none",
        "needs a Kubernetes control plane. The score is the killed as a share of those that are not equivalent:",
        f"**{score(outcomes, reasons):.1%}**.",
        f"Commits at which they were tried, as they landed: {commits}.",
        "",
        "| package | mutants | killed | survived | equivalent |",
        "|---|---|---|---|---|",
        *_rows(outcomes, reasons),
        "",
        "## Survivors",
        "",
        "| mutant | verdict | why it may survive |",
        "|---|---|---|",
    ]
    for one in survivors:
        known = reasons.get(one.mutant.key)
        kind = "equivalent: " if known is not None and known.is_equivalent else ""
        why = f"{kind}{known.reason}" if known is not None else "not looked at yet"
        place = f"`{one.mutant.path}` {one.mutant.function}"
        fault = f"{one.mutant.operator}: `{_short(one.mutant.before)}` to `{_short(one.mutant.after)}`"
        lines.append(f"| {place}: {fault} | {one.verdict} | {why} |".replace("\n", " "))
    return "\n".join([*lines, ""])


def _rows(outcomes: Sequence[Outcome], reasons: Mapping[str, Reason]) -> list[str]:
    counts: dict[str, Counter[str]] = {}
    for one in outcomes:
        row = counts.setdefault("/".join(one.mutant.path.split("/")[:2]).removesuffix(".py"), Counter())
        known = reasons.get(one.mutant.key)
        row[
            "killed" if one.is_killed else "equivalent" if known is not None and known.is_equivalent else "survived"
        ] += 1
    return [
        f"| `{package}` | {row.total()} | {row['killed']} | {row['survived']} | {row['equivalent']} |"
        for package, row in sorted(counts.items())
    ]


def _short(text: str, most: int = 70) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= most else f"{line[: most - 1]}…"
