"""The gate that makes what a loop calls after its backward pass take effect once for each step of the group.

A loop's body runs for every micro-batch, and again for a step that was dropped.  Optimisers do nothing then, because no
parameter has a gradient; schedules, scalers and moving averages would advance.  So the methods by which those advance
do nothing while the gate is closed.  The gate counts the calls of optimisers that came while it was open: a step that
counts in the job and at no optimiser is one whose gradients are lost.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from functools import partial, update_wrapper, wraps
from typing import Any, Final

import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.torch.gradient_buckets import GradientBuckets

# of the classes that have them, the methods by which they advance
ADVANCES: Final = ("step", "update", "unscale_", "update_parameters")
ADVANCES_OF_AVERAGES: Final = ("step", "update", "update_parameters")  # modules that follow a trained one
ADVANCES_OF_MODELS: Final = ("update_parameters",)


class StepGate:
    """Open from the moment at which a step is complete at this trainer until the loop asks for the next records."""

    def __init__(self, buckets: GradientBuckets) -> None:
        self.buckets: Final = buckets
        self.is_open = False
        self.optimizer_calls = 0  # since it was opened
        self._undo: list[Callable[[], None]] = []

    def open(self) -> None:
        self.is_open, self.optimizer_calls = True, 0

    def guard(self, part: Any, *, is_average: bool = False) -> None:
        """From now on the methods of `part` by which it advances return None while the gate is closed.

        `part.step(closure)` of an optimiser raises UsageError, and so does `part.step()` after a backward pass of the
        script's own.  `is_average`: a module that follows a trained one; the
        methods of others, as running statistics of inputs, are their own affair.
        """
        if isinstance(part, torch.optim.Optimizer):
            before = vars(part).get("step")  # of the object: schedules have put their own there before
            part.step = _GuardedStep(part.step, self)
            self._undo.append(partial(_unguard_optimizer, part, before))
            return
        names: tuple[str, ...] = ADVANCES
        if isinstance(part, torch.nn.Module):
            names = ADVANCES_OF_AVERAGES if is_average else ADVANCES_OF_MODELS
        kind = type(part)
        methods = {name: self._guarded(part, name) for name in names if callable(getattr(kind, name, None))}
        if methods:
            # By its class: attributes of a schedule's object are part of its state.
            named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
            as_made = {"__reduce_ex__": _reduced_as(kind), "__slots__": ()}
            object.__setattr__(part, "__class__", type(kind.__name__, (kind,), methods | named | as_made))
            self._undo.append(partial(object.__setattr__, part, "__class__", kind))

    def release(self) -> None:
        """What was guarded acts at each call again.  May be repeated."""
        while self._undo:
            self._undo.pop()()

    def _guarded(self, part: Any, name: str) -> Callable[..., Any]:
        method = getattr(type(part), name)
        is_optimizer_call = isinstance(part, torch.amp.GradScaler) and name == "step"

        @wraps(method)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if not self.is_open:
                return None
            self.optimizer_calls += is_optimizer_call  # it may find that the optimizer must not be called
            return method(*arguments, **named)

        return guarded


def _unguard_optimizer(optimizer: Any, before: Any) -> None:
    if isinstance(vars(optimizer).get("step"), _GuardedStep):  # else somebody has put another one there
        del optimizer.step
        if before is not None:
            optimizer.step = before


def _reduced_as(kind: type) -> Callable[..., Any]:
    """`__reduce_ex__` by which copies, pickled ones too, are of the class that the script knows, with no guard."""
    own: Any = kind.__reduce_ex__

    def reduced(self: Any, protocol: Any) -> Any:
        found = own(self, protocol)
        if isinstance(found, str):
            return found
        function, arguments, *rest = found
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]  # which pickle asks to be of the object's class
            function = kind.__new__
        return (function, tuple(kind if one is type(self) else one for one in arguments), *rest)

    return reduced


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
        if not self._gate.is_open:
            return None
        self._gate.buckets.check_own()
        self._gate.optimizer_calls += 1
        return self._step()

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
