"""The gate that makes what a loop calls after its backward pass take effect once for each step of the group.

A loop's body runs for every micro-batch, and again for a step that was dropped.  Optimisers do nothing then, because no
parameter has a gradient; schedules, scalers and moving averages would advance.  So the methods by which those advance
do nothing while the gate is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import Any, Final

import torch

from trainer_sdk.errors import UsageError

# of the classes that have them, the methods by which they advance
ADVANCES: Final = ("step", "update", "unscale_", "update_parameters")


class StepGate:
    """Open from the moment at which a step is complete at this trainer until the loop asks for the next records."""

    def __init__(self) -> None:
        self.is_open = False

    def guard(self, part: Any) -> None:
        """From now on the methods of `part` by which it advances return None while the gate is closed.

        `part.step(closure)` of an optimiser raises UsageError.
        """
        if isinstance(part, torch.optim.Optimizer):
            part.step = _GuardedStep(part.step, self)  # of the object: schedules have put their own there before
        elif not isinstance(part, torch.nn.Module) or hasattr(part, "update_parameters"):
            kind = type(part)
            methods = {name: self._guarded(getattr(kind, name)) for name in ADVANCES if hasattr(kind, name)}
            # By its class: attributes of a schedule's object are part of its state.
            named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
            part.__class__ = type(kind.__name__, (kind,), methods | named)

    def _guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def guarded(*arguments: Any, **named: Any) -> Any:
            return method(*arguments, **named) if self.is_open else None

        return guarded


class _GuardedStep:
    """`step` of an optimizer, behind the gate."""

    def __init__(self, step: Callable[..., Any], gate: StepGate) -> None:
        update_wrapper(self, step)  # with the mark of a schedule that was made before
        self._step, self._gate = step, gate

    def __call__(self, closure: Any = None) -> Any:
        if closure is not None:
            raise UsageError(
                "optimizer.step(closure): evaluates the model again in the middle of a step, on this trainer's "
                "records alone; use an optimizer that takes none (LBFGS cannot be used in a group)"
            )
        return self._step() if self._gate.is_open else None

    @property
    def __func__(self) -> Any:
        """Attribute that a schedule takes to put its own step there, if none was made before.  Raises UsageError."""
        raise UsageError(
            "a learning-rate schedule is made after replicate(), so it would advance with every micro-batch; make it "
            "before, and give it too: replicate(session, model, optimizer, schedule)"
        )


def check_schedules(optimizer: Any, schedules: tuple[Any, ...]) -> None:
    """Raises UsageError when a schedule was made for the optimiser and is not among these: it would advance wrongly."""
    has_one = hasattr(optimizer.step, "_wrapped_by_lr_sched")
    if has_one and not any(getattr(one, "optimizer", None) is optimizer for one in _all_schedules(schedules)):
        raise UsageError(
            "replicate(): a learning-rate schedule was made for the optimizer; give it too, "
            "replicate(session, model, optimizer, schedule), else it would advance with every micro-batch"
        )


def _all_schedules(schedules: tuple[Any, ...]) -> list[Any]:
    nested = [inner for one in schedules for inner in getattr(one, "_schedulers", ())]
    return [*schedules, *(_all_schedules(tuple(nested)) if nested else ())]
