"""Verdicts on the devices of a node: who works, who only holds, what is free.

| the samples of the window | the device | verdict |
|---|---|---|
| one works, or data is missing, stale or contradicts itself | any | active |
| low, but the window is not over | any | active |
| the last one has too few signals | any | unknown |
| all low | a pod or a process has it | held |
| all low | nobody has it | free |

*Unknown* is the answer for a kind of device that cannot tell by two sources; it never permits an action, as *active*
does not.  One sample that is not low begins the window anew.  `pod_verdicts` tells the same for each pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.idle_power import IDLE_WATTS, idle_watts
from autoscaler.gpus.owners import DeviceClaim, DeviceOwners, OwnersUnknown
from autoscaler.gpus.readings import Absence, DeviceReading, DriverFailure, NodeReading
from autoscaler.gpus.sample_outcomes import SampleOutcome, distrust_zeros, outcome_of
from autoscaler.gpus.signals import Signal, SignalState, mean_watts, read_signals

_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRule:
    """Rule of the verdicts: how long a device must be low, how far apart readings may lie, idle power by model."""

    window_s: float = 300.0
    longest_gap_s: float = 20.0  # a reading later than this is stale: what happened between is not known
    lines: Mapping[str, float] = field(default_factory=lambda: IDLE_WATTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceVerdict:
    """The verdict on one device and what it rests on."""

    reading: DeviceReading
    verdict: GpuVerdict
    outcome: SampleOutcome
    reason: str = ""
    evidence: tuple[Signal, ...]
    low_s: float = 0.0  # for how long every sample has been low
    watts: float | None = None  # of the whole GPU, mean since the reading before


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHistory:
    """The reading before, and since when every sample has been low."""

    reading: DeviceReading
    low_since_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHistory:
    """Past of a node, as far as verdicts need it: nothing grows with time."""

    at_ns: int | None = None  # of the last reading; None after a failure
    devices: Mapping[str, DeviceHistory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    history: NodeHistory
    verdicts: tuple[DeviceVerdict, ...]


def judge_node(
    history: NodeHistory,
    reading: NodeReading | DriverFailure,
    owners: DeviceOwners | OwnersUnknown,
    rule: VerdictRule,
) -> Judgement:
    """Verdicts on all devices after this reading, and the history for the next one."""
    if isinstance(reading, DriverFailure):
        return _after_failure(history, reading)
    interval_s, is_stale = _interval(history, reading, rule)
    befores = {} if is_stale else {uuid: one.reading for uuid, one in history.devices.items()}
    signals = distrust_zeros(
        {
            one.uuid: read_signals(
                befores.get(one.uuid), one, interval_s=interval_s, idle_watts=idle_watts(one.model, rule.lines)
            )
            for one in reading.devices
        }
    )
    devices: dict[str, DeviceHistory] = {}
    verdicts: list[DeviceVerdict] = []
    for one in reading.devices:
        outcome = outcome_of(signals[one.uuid])
        if one.uuid not in befores and outcome is SampleOutcome.LOW:
            outcome = SampleOutcome.MISSING  # a first reading says nothing of an interval
        low_since_ns = _low_since(None if is_stale else history.devices.get(one.uuid), history, outcome)
        devices[one.uuid] = DeviceHistory(reading=one, low_since_ns=low_since_ns)
        low_s = 0.0 if low_since_ns is None else (reading.at_ns - low_since_ns) / _NS
        watts = mean_watts(befores.get(one.uuid), one, interval_s)
        device = DeviceVerdict(
            reading=one,
            verdict=GpuVerdict.ACTIVE,
            outcome=outcome,
            evidence=signals[one.uuid],
            low_s=low_s,
            watts=None if isinstance(watts, Absence) else watts,
        )
        verdict, reason = _verdict(device, owners, rule)
        verdicts.append(replace(device, verdict=verdict, reason=reason))
    return Judgement(history=NodeHistory(at_ns=reading.at_ns, devices=devices), verdicts=tuple(verdicts))


def _after_failure(history: NodeHistory, failure: DriverFailure) -> Judgement:
    """Every device is active, and every window begins anew."""
    verdicts = tuple(
        DeviceVerdict(
            reading=one.reading,
            verdict=GpuVerdict.ACTIVE,
            outcome=SampleOutcome.MISSING,
            reason=failure.message,
            evidence=(),
        )
        for one in history.devices.values()
    )
    devices = {uuid: DeviceHistory(reading=one.reading) for uuid, one in history.devices.items()}
    return Judgement(history=NodeHistory(at_ns=None, devices=devices), verdicts=verdicts)


def _interval(history: NodeHistory, reading: NodeReading, rule: VerdictRule) -> tuple[float, bool]:
    """Seconds since the reading before, and whether that is too long ago, or not before."""
    if history.at_ns is None:
        return 0.0, True
    interval_s = (reading.at_ns - history.at_ns) / _NS
    return interval_s, not 0.0 < interval_s <= rule.longest_gap_s


def _low_since(before: DeviceHistory | None, history: NodeHistory, outcome: SampleOutcome) -> int | None:
    if outcome is not SampleOutcome.LOW:
        return None
    if before is None or before.low_since_ns is None:
        return history.at_ns  # the sample covers the interval since then
    return before.low_since_ns


def _verdict(device: DeviceVerdict, owners: DeviceOwners | OwnersUnknown, rule: VerdictRule) -> tuple[GpuVerdict, str]:
    """Verdict by the table of this module, and why."""
    match device.outcome:
        case SampleOutcome.WORKING:
            return GpuVerdict.ACTIVE, _named(device.evidence, SignalState.WORKING)
        case SampleOutcome.MISSING:
            return GpuVerdict.ACTIVE, _named(
                device.evidence, SignalState.MISSING
            ) or "nothing is known of the time before"
        case SampleOutcome.TOO_FEW:
            return GpuVerdict.UNKNOWN, "fewer than two sources can tell for this device"
        case SampleOutcome.LOW if device.low_s < rule.window_s:
            return GpuVerdict.ACTIVE, f"low for {device.low_s:.0f} s of {rule.window_s:.0f} s"
        case SampleOutcome.LOW:
            return _verdict_of_low(device, owners)
        case _:
            assert_never(device.outcome)


def _verdict_of_low(device: DeviceVerdict, owners: DeviceOwners | OwnersUnknown) -> tuple[GpuVerdict, str]:
    """Held or free, by who has the device."""
    reading = device.reading
    if isinstance(owners, OwnersUnknown):
        return GpuVerdict.ACTIVE, f"who holds it is not known: {owners.reason}"
    if pods := contradicting_pods(owners.claims.get(reading.uuid, ())):
        return GpuVerdict.ACTIVE, f"several pods claim it and not as a share: {pods}"
    if owners.claims.get(reading.uuid):
        return GpuVerdict.HELD, f"nobody computed for {device.low_s:.0f} s"
    if owners.unresolved:
        return GpuVerdict.ACTIVE, f"a pod holds a device that is not known here: {owners.unresolved[0]}"
    if isinstance(reading.processes, Absence):
        return GpuVerdict.UNKNOWN, "no pod claims it, and whether a process has it is not known"
    if reading.processes or reading.has_mps:
        return GpuVerdict.HELD, f"nobody computed for {device.low_s:.0f} s"
    return GpuVerdict.FREE, "no pod and no process has it"


def contradicting_pods(claims: Sequence[DeviceClaim]) -> str:
    """Names of the pods that claim one device, if they cannot all be right."""
    pods = sorted({str(one.pod) for one in claims})
    return ", ".join(pods) if len(pods) > 1 and not all(one.is_share for one in claims) else ""


def _named(signals: tuple[Signal, ...], state: SignalState) -> str:
    """The signals of this state, and beside work those that contradict it."""
    told = "; ".join(f"{one.source.value}: {one.text}" for one in signals if one.state is state)
    low = "; ".join(f"{one.source.value}: {one.text}" for one in signals if one.state is SignalState.LOW)
    return f"{told} (contradicted by {low})" if low and state is SignalState.WORKING else told
