"""Outcome of one sample of a device: whether its signals, taken together, say that nobody computes.

| signals | outcome |
|---|---|
| any says work | WORKING, whatever the others say |
| else any is missing | MISSING |
| else two or more are low, and one of them covers the interval | LOW |
| else | TOO_FEW |

Before that the sources are compared over the node.  A counter that reads 0 on every device at once may be broken, as
profiling counters of whole busy nodes were: it counts only where the power of every device confirms it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from autoscaler.gpus.signals import Signal, SignalState, Source

LEAST_LOW_SOURCES: Final = 2

_DISTRUSTED: Final = (Source.COUNTERS, Source.GPM)
_TOLD: Final = frozenset({SignalState.LOW, SignalState.WORKING})


class SampleOutcome(StrEnum):
    WORKING = "working"
    MISSING = "missing"
    LOW = "low"
    TOO_FEW = "too few signals"


def outcome_of(signals: Sequence[Signal]) -> SampleOutcome:
    """Outcome by the table above."""
    states = [one.state for one in signals]
    if SignalState.WORKING in states:
        return SampleOutcome.WORKING
    if SignalState.MISSING in states:
        return SampleOutcome.MISSING
    low = [one for one in signals if one.state is SignalState.LOW]
    if len(low) >= LEAST_LOW_SOURCES and any(one.covers_interval for one in low):
        return SampleOutcome.LOW
    return SampleOutcome.TOO_FEW


def distrust_zeros(of_devices: Mapping[str, tuple[Signal, ...]]) -> Mapping[str, tuple[Signal, ...]]:
    """The signals, without zeros that every device of the node has at once and power does not confirm.

    Where some device draws more than idle, the source is broken, and its zeros become MISSING.  Where power is unknown
    for these models, the zeros become SILENT.
    """
    for source in _DISTRUSTED:
        told = [signals for signals in of_devices.values() if _of(signals, source).state in _TOLD]
        power = {_of(signals, Source.POWER).state for signals in told}
        if len(told) < 2 or any(_of(one, source).state is SignalState.WORKING for one in told):
            continue
        if power == {SignalState.LOW}:
            continue
        is_broken = not power <= {SignalState.LOW, SignalState.UNSUPPORTED}
        state = SignalState.MISSING if is_broken else SignalState.SILENT
        of_devices = {
            uuid: tuple(_distrusted(one, state) if one.source is source else one for one in signals)
            for uuid, signals in of_devices.items()
        }
    return of_devices


def _distrusted(signal: Signal, state: SignalState) -> Signal:
    if signal.state is not SignalState.LOW:
        return signal
    return replace(signal, state=state, text=f"{signal.text} on every GPU of the node, which power does not confirm")


def _of(signals: Sequence[Signal], source: Source) -> Signal:
    return next(one for one in signals if one.source is source)
