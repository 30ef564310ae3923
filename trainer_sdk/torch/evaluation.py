"""An evaluation of a data set by all ranks of a group, on the same parameters, with the same result for all.

Each rank takes every n-th batch, and the numbers are added up exactly, so that the result does not depend on how many
ranks there are.  When the group breaks meanwhile, a rank evaluates the rest by itself: it still has the parameters.
"""

from __future__ import annotations

import json
import math
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch

from trainer_sdk.errors import StepAborted, UsageError
from trainer_sdk.group.group_steps import GroupSteps
from trainer_sdk.specs import whole_number
from trainer_sdk.torch.record_source import size_of

BatchNumbers = dict[int, dict[str, float]]  # by batch: what the script's function returned of it


TOLD_BREAKS: Final = 2
"""So many times in a row the group breaks in an evaluation before that is told: each join or loss breaks one."""
_BROKEN: Final = (
    "edl: evaluate(): the group broke in it {} times in a row ({}); this trainer evaluates the rest by itself. If this "
    "goes on, some trainers do not call it: call it at all of them, not under `if session.is_leader`\n"
)


class EvaluationBreaks:
    """Counts for each evaluation of a script how often in a row the group broke in it; standard error tells it."""

    def __init__(self) -> None:
        self._in_a_row: Counter[str] = Counter()

    def count(self, evaluation: str, broke: StepAborted | None) -> None:
        if broke is None:
            del self._in_a_row[evaluation]
            return
        self._in_a_row[evaluation] += 1
        if (times := self._in_a_row[evaluation]) >= TOLD_BREAKS:
            sys.stderr.write(_BROKEN.format(times, broke))


class EvaluationBatches:
    """The batches of a data set in the order of its records."""

    def __init__(self, dataset: Any, batch_size: int, options: Mapping[str, Any]) -> None:
        """Raises UsageError for a data set that has no record numbers, and for no number of records a batch."""
        self._size = size_of(dataset)
        self._dataset, self._batch_size = dataset, whole_number("batch_size", batch_size)
        self._options = options
        self.name: Final = type(dataset).__name__
        self.count = -(-self._size // batch_size)

    def numbers(self, chosen: Iterable[int], function: Callable[[Any], Mapping[str, Any]]) -> BatchNumbers:
        """Numbers that `function` returns of these batches.  Raises UsageError for anything but numbers by name."""
        batches = list(chosen)
        starts = [batch * self._batch_size for batch in batches]
        records = [range(start, min(start + self._batch_size, self._size)) for start in starts]
        loader = torch.utils.data.DataLoader(self._dataset, batch_sampler=records, **self._options)
        return {batch: _checked(function(data)) for batch, data in zip(batches, self._read(loader), strict=True)}

    def _read(self, loader: Any) -> Iterator[Any]:
        """The loader's batches.  Raises UsageError where worker processes cannot start, or be sent the data set."""
        try:
            found = iter(loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            if not loader.num_workers:
                raise
            raise UsageError(
                f"evaluate(num_workers={loader.num_workers}): {type(self._dataset).__name__} or collate_fn cannot be "
                f"sent to worker processes ({error}): define their classes and functions at the top of a module, or "
                "read without workers"
            ) from error
        try:
            yield from found
        except RuntimeError as error:
            if "exited unexpectedly" not in str(error):  # torch's words for a worker that is gone
                raise
            raise UsageError(
                f"evaluate(num_workers={loader.num_workers}): {error}; a worker runs the script's top level first, so "
                'put what the script does under `if __name__ == "__main__":`'
            ) from error


def evaluate_alone(batches: EvaluationBatches, function: Callable[[Any], Mapping[str, Any]]) -> dict[str, float]:
    """The sums of what `function` returns of each batch."""
    return _sums(batches.numbers(range(batches.count), function))


def evaluate_together(
    batches: EvaluationBatches,
    function: Callable[[Any], Mapping[str, Any]],
    steps: GroupSteps,
    breaks: EvaluationBreaks,
) -> dict[str, float]:
    """The same sums, each rank having evaluated its part of the batches, and more of them where the group broke."""
    broke: StepAborted | None = None
    numbers = batches.numbers(range(steps.rank, batches.count, steps.size), function)
    try:
        texts = steps.gather(json.dumps([[batch, held] for batch, held in numbers.items()]).encode())
        for text in texts:
            numbers |= dict(json.loads(text))
    except StepAborted as error:
        broke = error
        missing = [batch for batch in range(batches.count) if batch not in numbers]
        numbers |= batches.numbers(missing, function)
    breaks.count(f"{batches.name} {getattr(function, '__qualname__', type(function).__name__)}", broke)
    return _sums(numbers)


@contextmanager
def evaluating(modules: Iterable[Any]) -> Iterator[None]:
    """Modules are in evaluation mode and no gradient is kept; afterwards each is in the mode that it had."""
    modes = [(module, module.training) for one in modules for module in one.modules()]
    try:
        for module, _ in modes:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training


def _checked(returned: Any) -> dict[str, float]:
    if not isinstance(returned, Mapping):
        raise UsageError(
            f"evaluate(): the function returned {type(returned).__name__}; return numbers to add up, by name: "
            '{"correct": ..., "count": ...}'
        )
    try:
        return {str(name): float(value) for name, value in returned.items()}
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # torch's, of a tensor of several numbers
        raise UsageError(
            f"evaluate(): the function returned what is no number ({error}); add it up over the batch, x.sum(), say"
        ) from error


def _sums(numbers: BatchNumbers) -> dict[str, float]:
    """Exact sums, so that their order is of no matter."""
    names = {name: None for batch in sorted(numbers) for name in numbers[batch]}
    return {name: _total([held[name] for held in numbers.values() if name in held]) for name in names}


def _total(values: list[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
