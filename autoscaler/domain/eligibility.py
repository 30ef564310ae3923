"""Node eligibility of a pod, capacity aside: node labels, required node affinity, taints and tolerations.

The terms mean what they mean in Kubernetes. Preferences (PreferNoSchedule, preferred affinity) decide no eligibility
and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

Labels = frozenset[tuple[str, str]]

NODE_NAME: Final = "metadata.name"
"""The key of a requirement on the node itself (`matchFields`)."""


class LabelOperator(StrEnum):
    """Comparison of a label with a requirement's values."""

    IN = "In"
    NOT_IN = "NotIn"  # holds for a node without the label too
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"  # of whole numbers; anything else does not compare
    LT = "Lt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One line of `matchExpressions`, or of `matchFields` with `NODE_NAME` as its key."""

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def holds(self, labels: dict[str, str]) -> bool:
        """True if a node with these labels fulfils it."""
        found = labels.get(self.key)
        match self.operator:
            case LabelOperator.IN:
                return found is not None and found in self.values
            case LabelOperator.NOT_IN:
                return found is None or found not in self.values
            case LabelOperator.EXISTS:
                return found is not None
            case LabelOperator.DOES_NOT_EXIST:
                return found is None
            case LabelOperator.GT | LabelOperator.LT:
                return is_beyond(found, self.values, above=self.operator is LabelOperator.GT)
            case _:
                assert_never(self.operator)


def is_beyond(found: str | None, values: tuple[str, ...], *, above: bool) -> bool:
    """True if the label is a whole number above (or below) the single value."""
    try:
        number, bound = int(found or ""), int(values[0]) if len(values) == 1 else None
    except ValueError:
        return False
    if bound is None:
        return False
    return number > bound if above else number < bound


NodeSelectorTerm = tuple[Requirement, ...]
"""All of these hold."""


class TaintEffect(StrEnum):
    """Effect of a taint on pods that do not tolerate it.  Both keep new pods away."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Taint:
    """Keeps pods away from a node."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Lets a pod stand beside matching taints. An empty key matches every key, no effect every effect."""

    key: str = ""
    value: str | None = None  # None: operator Exists
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        """True if this toleration matches the taint."""
        return self.key in {"", taint.key} and self.value in {None, taint.value} and self.effect in {None, taint.effect}
