"""What tests of a run's control plane have in common: the nodes of a machine, and how long they wait."""

from pathlib import Path

from autoscaler.domain import Node, Resources

PROGRAMS = Path(__file__).resolve().parents[3] / "programs"
DEADLINE_S = 120.0


def nodes(count=2, cpu_milli=4000, gpus=()):
    """So many equal nodes, each with its GPU numbers."""
    capacity = Resources(cpu_milli=cpu_milli, memory_bytes=8 << 30, gpu_count=len(gpus), extended=(("pods", 20),))
    return {Node(name=f"node-{number}", allocatable=capacity): tuple(gpus) for number in range(1, count + 1)}
