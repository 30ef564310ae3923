"""What a campaign finds, as it finds it: which blows fell, which resizes are over, on which kind of job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.campaign_totals import Tally
from tests.chaos.moves.failpoints import Step
from tests.chaos.moves.fault_matrix import Blow, Landed
from tests.chaos.moves.job_kinds import JobKind
from tests.chaos.moves.resize_plans import Plan
from tests.chaos.moves.resizes import Order


@dataclass(slots=True, kw_only=True)
class Share:
    """What one kind of job had of it."""

    jobs: int = 0
    resizes: int = 0
    faults: int = 0
    made_good: int = 0  # losses of one server while every bucket had two copies: none of them took anything back
    roll_backs: int = 0  # or, where the others keep what they have, as often as that


@dataclass(slots=True, kw_only=True)
class Report(Tally):
    """What a campaign found."""

    shares: dict[JobKind, Share] = field(default_factory=lambda: defaultdict(Share))
    landed: list[Landed] = field(default_factory=list)
    resizes: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)  # from the last blow to a resize's end
    unmet: Counter[Step] = field(default_factory=Counter)  # steps that a resize ended without
    graces_over: int = 0


class Notes:
    """Keeps the report; what did not fall goes back to the plan."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self.report = Report()

    def take_back(self, blows: Sequence[Blow]) -> None:
        """These did not fall: their steps were not met."""
        self._plan.take_back(blows)
        self.report.unmet.update(blow.step for blow in blows)

    def note_losses(self, kind: JobKind, order: Order, made_good: int, problems: list[str]) -> None:
        """Of servers while buckets had two copies."""
        self.report.shares[kind].made_good += made_good
        for problem in problems:
            self.report.problems.append(f"{order}: {problem}")
            self._say(f"PROBLEM {order}: {problem}")

    def note(self, kind: JobKind, order: Order, landed: Sequence[Landed], took_s: float) -> None:
        """The resize is over, the job has recovered."""
        self.report.shares[kind].resizes += 1
        self.report.shares[kind].faults += len(landed)
        self.report.resizes[order.kind] += 1
        self.report.landed += landed
        self.report.took_s.append(took_s)
        total, faults = self.report.resizes.total(), len(self.report.landed)
        self._say(f"{total:4} {order}: {len(landed)} blows, over {took_s:.1f} s after the last; {faults} so far")
        for one in landed:
            self._say(f"       {one.blow} ({one.told})")
