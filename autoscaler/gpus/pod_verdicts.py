"""Verdicts for each pod on each device that it has.

| the device | the pod | verdict |
|---|---|---|
| its pods contradict each other | any | active |
| one pod has it | that pod | that of the device |
| shared, nobody computes | any | held |
| shared, data is missing or the window is not over | any | active |
| shared, somebody works | a process of the pod has worked | active |
| shared, somebody works | any other | unknown |

A shared device's figures are those of all who share it, and power cannot tell one from another.  So while somebody
works, only a pod that is seen to work is known; under MPS the work of all may be told as the server's.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.owners import DeviceOwners, HoldingPod, OwnersUnknown
from autoscaler.gpus.readings import Absence, DeviceProcess, ProcessWork
from autoscaler.gpus.sample_outcomes import SampleOutcome
from autoscaler.gpus.signals import WORKING_PERCENT
from autoscaler.gpus.verdicts import DeviceVerdict, contradicting_pods


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVerdict:
    """The verdict on one pod's use of one device."""

    pod: HoldingPod
    device: DeviceVerdict
    verdict: GpuVerdict
    reason: str


def judge_pods(device: DeviceVerdict, owners: DeviceOwners | OwnersUnknown) -> tuple[PodVerdict, ...]:
    """One verdict for each pod that has the device, by name; none where the kubelet did not tell."""
    if isinstance(owners, OwnersUnknown):
        return ()
    claims = owners.claims.get(device.reading.uuid, ())
    claimants = {one.pod for one in claims}
    present = _pods_of(device.reading.processes, owners)
    strangers = sorted(present - claimants) if claimants else []
    if strangers:
        fixed: tuple[GpuVerdict, str] | None = (
            GpuVerdict.ACTIVE,
            f"a process of {strangers[0]} has it, which does not claim it",
        )
    elif contradicting_pods(claims):
        fixed = (GpuVerdict.ACTIVE, device.reason)
    else:
        fixed = None
    pods = sorted(claimants | present)
    verdicts: list[PodVerdict] = []
    for pod in pods:
        verdict, reason = fixed or _verdict(pod, device, owners, is_shared=len(pods) > 1)
        verdicts.append(PodVerdict(pod=pod, device=device, verdict=verdict, reason=reason))
    return tuple(verdicts)


def _verdict(
    pod: HoldingPod, device: DeviceVerdict, owners: DeviceOwners, *, is_shared: bool
) -> tuple[GpuVerdict, str]:
    if not is_shared or device.outcome is not SampleOutcome.WORKING:
        return device.verdict, device.reason
    work = device.reading.work
    working = () if isinstance(work, Absence) else tuple(one for one in work if one.percent >= WORKING_PERCENT)
    if pod in _pods_of(working, owners):
        return GpuVerdict.ACTIVE, "a process of this pod works"
    return GpuVerdict.UNKNOWN, "another pod may work on this shared device"


def _pods_of(
    processes: tuple[DeviceProcess, ...] | tuple[ProcessWork, ...] | Absence, owners: DeviceOwners
) -> frozenset[HoldingPod]:
    """Pods of these processes, where they are known."""
    if isinstance(processes, Absence):
        return frozenset()
    return frozenset(pod for one in processes if (pod := owners.pods_of_pids.get(one.pid)) is not None)
