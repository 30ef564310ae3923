"""What a simulated group's cluster is like: times of steps, messages and writes, as parameters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterModel:
    """Seconds, unless a name says otherwise.

    What is left out: jitter of steps, contention of the network, checkpoints, losses of machines whose connections do
    not close (the master finds those by its windows, as `bench_torch` measures with SIGSTOP).
    """

    members: int
    compute_s: float  # of a step, while all members are there; the global batch is constant, so fewer take longer
    reduce_s: float  # the part of a step's all-reduce that no backward pass hides, with the flag collective
    network_s: float  # one way of a message, and until a closed connection is noticed
    connect_s: float  # until the members of a generation are connected to one another
    commit_s: float  # of a transaction in the store
    message_s: float  # what the master's process pays for a message, beside its core: reading, decoding, sending
    state_bytes: float  # of a replica, that a joiner takes from one member
    bytes_per_s: float  # of that transfer, with reading and writing it
    capture_s: float  # until the sender has a copy of it, and goes on
    start_s: float  # from a member's death until its successor's process registers
    report_every_s: float = 1.0
    forward_share: float = 1 / 3  # of a step's computing: what a rank does that has no share of it


def cpu_of(action: Callable[[], object]) -> float:
    """CPU seconds that this took here: what a core's decision costs."""
    began_s = time.thread_time()
    action()
    return time.thread_time() - began_s


def free_of_charge(action: Callable[[], object]) -> float:
    """The action is done, and costs no virtual time: the same run each time."""
    action()
    return 0.0


Charge = Callable[[Callable[[], object]], float]
