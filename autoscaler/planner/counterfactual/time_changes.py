"""Changes by time alone, and a fresh view.

Time is not tried in steps: a plan names the instant at which time alone changes it (`Plan.replan_at_s`), so the rungs
are these instants, one after the other. The windows stay on, since they are what ends. A view without news counts as
unchanged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.domain import Bottleneck, Plan
from autoscaler.planner import Memo, plan
from autoscaler.planner.counterfactual.change import ChangeKind, Ladder, PlanInputs

INSTANTS_TRIED: Final = 16
TIMED: Final = frozenset({Bottleneck.COOLDOWN, Bottleneck.BUDGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitUntil:
    """Only time passes, until this instant of the cluster's clock."""

    from_s: float
    until_s: float
    kind: ChangeKind = ChangeKind.TIME

    @property
    def amount(self) -> float:
        return self.until_s - self.from_s

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        view = inputs.view.evolve(observed_at_s=inputs.view.observed_at_s + self.amount)
        return replace(inputs, view=view, now_s=self.until_s)

    def describe(self) -> str:
        return f"time: in {self.amount:.1f} s" if self.amount < 10 else f"time: in {self.amount:.0f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshView:
    """The cluster observed again, with these nodes ready."""

    nodes: tuple[str, ...] = ()
    kind: ChangeKind = ChangeKind.VIEW

    @property
    def amount(self) -> float:
        return len(self.nodes)

    def apply(self, inputs: PlanInputs) -> PlanInputs:
        back = [replace(node, is_ready=True) for node in inputs.view.nodes if node.name in self.nodes]
        view = inputs.view.evolve(nodes=back, observed_at_s=inputs.now_s, is_synced=True)
        return replace(inputs, view=view)

    def describe(self) -> str:
        return "a view of now" + (f", with {', '.join(self.nodes)} ready again" if self.nodes else "")


def view_ladders(inputs: PlanInputs) -> Iterator[Ladder]:
    """Yield a fresh view, then one with more and more nodes ready."""
    lost = [node.name for node in inputs.view.nodes if not node.is_ready]
    yield [FreshView(nodes=tuple(lost[:count])) for count in range(len(lost) + 1)]


def instants(inputs: PlanInputs, first: Plan, memo: Memo) -> Iterator[tuple[WaitUntil, Plan]]:
    """Yield instants at which time alone changes the plan, with the plan at that instant; a bounded number."""
    due_s = first.replan_at_s
    for _ in range(INSTANTS_TRIED):
        if due_s is None:
            return
        wait = WaitUntil(from_s=inputs.now_s, until_s=due_s)
        then = wait.apply(inputs)
        found = plan(then.view, then.policy, then.now_s, memo=memo)
        yield wait, found
        due_s = found.replan_at_s
