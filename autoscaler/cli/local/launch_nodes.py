"""Virtual nodes of `edl launch` on this machine: one with the machine's cores, memory and GPUs, unless some are named.

The job then grows to what the machine has.  Its minimum runs also where it asks for more cores or memory than there
are, since processes share those; a GPU cannot be shared so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.local.machine.cgroup_limits import CgroupLimits, read_limits
from autoscaler.clusters.local.machine.gpus import GpuLookupError, MachineGpu, find_gpus, gpus_named
from autoscaler.domain import NOTHING, Resources
from autoscaler.manifests.api_types import Manifests, TrainingJob, VirtualNode
from autoscaler.manifests.conversion import make_virtual_node

MOST_GPUS: Final = 10_000
"""Of all nodes of a run, which has a number for each."""

_GIB: Final = 1 << 30


def machine_gpus() -> tuple[MachineGpu, ...]:
    """GPUs of the machine that this process may use; none where the driver does not tell."""
    try:
        return find_gpus(os.environ)
    except GpuLookupError:
        return ()


def gpus_by_number(nodes: Sequence[VirtualNode]) -> dict[int, str]:
    """CUDA's names of the GPUs that these nodes count by number, of those that this process may use (`gpus_named`).

    Raises CommandError where they count more.
    """
    try:
        return dict(gpus_named(sum(node.capacity.gpu_count for node in nodes), os.environ))
    except GpuLookupError as error:
        raise CommandError(Exit.REFUSED, str(error)) from None


def cores_and_memory() -> Resources:
    """Cores and memory that this process may use."""
    cores = 1000 * len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return bounded_capacity(Resources(cpu_milli=cores, memory_bytes=memory), read_limits())


def bounded_capacity(machine: Resources, limits: CgroupLimits) -> Resources:
    """The machine's resources within the limits of a container.  Pure."""
    cores, memory = limits.cpu_milli, limits.memory_bytes
    return replace(
        machine,
        cpu_milli=machine.cpu_milli if cores is None else min(cores, machine.cpu_milli),
        memory_bytes=machine.memory_bytes if memory is None else min(memory, machine.memory_bytes),
    )


def nodes_of_machine(job: TrainingJob, machine: Resources) -> tuple[VirtualNode, ...]:
    """One node for the job.  Pure.  Raises CommandError where the job's minimum needs more GPUs than there are.

    The master's own request comes on top, so that it takes no core from a trainer.
    """
    each = job.trainer.template.requests
    least = NOTHING.plus(each, times=job.trainer.replicas.minimum)
    if job.server is not None:
        least = least.plus(job.server.template.requests, times=job.server.replicas.minimum)
    if least.gpu_count > machine.gpu_count:
        requested = f"--gpu {each.gpu_count} for {job.trainer.replicas.minimum} trainers"
        hint = "lower --gpu or --trainers, or name virtual nodes by --nodes"
        raise CommandError(
            Exit.REFUSED, f"{requested} needs {least.gpu_count} GPUs; this machine has {machine.gpu_count}: {hint}"
        )
    room = Resources(
        cpu_milli=max(machine.cpu_milli, least.cpu_milli),
        memory_bytes=max(machine.memory_bytes, least.memory_bytes),
        gpu_count=machine.gpu_count,
    )
    master = replace(job.master.template.requests, extended=())
    pods = job.trainer.replicas.maximum + (0 if job.server is None else job.server.replicas.maximum) + 1
    return (make_virtual_node("machine", room + master, pod_limit=max(pods, 110)),)


def check_gpus(nodes: Sequence[VirtualNode], where: str) -> None:
    """Raise CommandError for more GPUs than a run has numbers for.  `where`: what named them."""
    count = sum(node.capacity.gpu_count for node in nodes)
    if count > MOST_GPUS:
        told = f"the nodes have {count:,} GPUs together, and a run has {MOST_GPUS:,} at most"
        raise CommandError(Exit.REFUSED, f"{where}: {told}; give each node fewer, or have fewer nodes")


def oversize_notices(manifests: Manifests, nodes: Sequence[VirtualNode], machine: Resources) -> tuple[str, ...]:
    """Notices of a virtual node that is larger than the machine, a master's own request apart.  Pure."""
    masters = [job.master.template.requests for job in manifests.jobs]
    cpu_milli = max(node.capacity.cpu_milli for node in nodes)
    memory_bytes = max(node.capacity.memory_bytes for node in nodes)
    notices = []
    if cpu_milli > machine.cpu_milli + max((one.cpu_milli for one in masters), default=0):
        sizes = f"{cpu_milli / 1000:g} cores, and this machine has {machine.cpu_milli / 1000:g}"
        notices.append(f"a virtual node has {sizes}: its pods share the machine's cores, so they are slower than asked")
    if memory_bytes > machine.memory_bytes + max((one.memory_bytes for one in masters), default=0):
        sizes = f"{memory_bytes / _GIB:.1f} GiB of memory, and this machine has {machine.memory_bytes / _GIB:.1f}"
        notices.append(f"a virtual node has {sizes}: pods that use all that they request may be killed")
    return tuple(notices)


def equal_nodes(count: int, capacity: Resources) -> tuple[VirtualNode, ...]:
    """Nodes of one shape, which says how many pods each takes."""
    return tuple(VirtualNode(name=f"node-{number}", capacity=capacity) for number in range(1, count + 1))
