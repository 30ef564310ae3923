"""The wires between control plane and nodes: a bridge, a pair of ends for each node, a route to its pods.

All of it lies in the network namespace that the tests run in, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.e2e.addresses import BRIDGE, CONTROL_PLANE, MOST_NODES, NODE_PREFIX, node_address, pod_range
from tests.harness.commands import run


def make_bridge() -> None:
    """Give this machine the address CONTROL_PLANE."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{CONTROL_PLANE}/{NODE_PREFIX}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def connect(node: str, number: int, pid: int) -> None:
    """Gives the node whose first process is `pid` its eth0, which that process then sets up."""
    _ip("link", "add", f"node-{node}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("link", "set", f"node-{node}", "master", BRIDGE, "up")
    _ip("route", "replace", pod_range(number), "via", node_address(number))


@contextmanager
def cut_off(node: str) -> Iterator[None]:
    """Nothing reaches the node, and it reaches nothing, as when it lost its power; then its network is as it was."""
    _ip("link", "set", f"node-{node}", "down")
    try:
        yield
    finally:
        _ip("link", "set", f"node-{node}", "up")


def inner_commands(number: int) -> list[Sequence[str]]:
    """What the node's first process runs once eth0 is there: its address, and the way to the pods of the others."""
    others = [other for other in range(1, MOST_NODES + 1) if other != number]
    return [
        ("ip", "link", "set", "lo", "up"),
        ("ip", "address", "add", f"{node_address(number)}/{NODE_PREFIX}", "dev", "eth0"),
        ("ip", "link", "set", "eth0", "up"),
        ("ip", "route", "add", "default", "via", CONTROL_PLANE),
        *[("ip", "route", "add", pod_range(other), "via", node_address(other)) for other in others],
    ]


def _ip(*arguments: str) -> None:
    run(["ip", *arguments])
