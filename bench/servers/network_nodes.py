"""Nodes on one machine, each with a network namespace and one full-duplex link to a switch.

A loopback socket is memory that is copied: it says what a move costs in processor time, and nothing about a network.
Here each node is a network namespace; its link has a rate in both directions and, like a port of a switch, a queue.
What runs on the nodes shares this machine's processors, so rates are meant that these can fill.

Namespaces have no names: one is there while a process is in it, and each node's own ends with its standard input.  So
nothing is left behind however this process ends.  Linux, and root or a user who may make namespaces.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

BEHIND_LINKS: Final = "behind-links"
LINK_BYTES_PER_S: Final = 125_000_000  # of a node, each way: what two processors can fill beside everything else
LINKS: Final = "1 Gbit/s a node"
TOOLS: Final = ("unshare", "nsenter", "ip", "tc")
QUEUE_BYTES: Final = 1 << 20  # of a port of the switch, and of a node's card
BURST_BYTES: Final = 128 << 10  # at least one segment as the kernel hands it to a card
_NETWORK: Final = "198.18.0"  # reserved for benchmarks (RFC 2544)
_DEADLINE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where processes run: `prefix` goes before their command."""

    address: str
    prefix: tuple[str, ...] = ()


HERE: Final = Node(address="127.0.0.1")


class NoNodesError(Exception):
    """This machine lets us make no networks, and says why."""


def run_behind_links(module: str) -> str:
    """`python -m MODULE behind-links` in a network of its own; why not, where this machine makes none."""
    try:
        subprocess.run(_within_switch([sys.executable, "-m", module, BEHIND_LINKS]), check=True)
    except NoNodesError as error:
        return f"; no links of nodes were measured: {error}"
    return ""


def _within_switch(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` in a network of its own, in which `Nodes` may be made.  Raises NoNodesError."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise NoNodesError(f"not installed: {', '.join(missing)}")
    enter = ["unshare", "--net"]
    problems = [_problem([*enter, *as_user, "true"]) for as_user in ([], ["--user", "--map-root-user"])]
    if all(problems):
        raise NoNodesError(str(problems[0]))
    return [*enter, *(["--user", "--map-root-user"] if problems[0] else []), *argv]


class Nodes:
    """This process is at the switch, and reaches all nodes over no link that is slow."""

    def __init__(self) -> None:
        self._rate = f"{8 * LINK_BYTES_PER_S}bit"
        self._count = 0
        self._alive = ExitStack()
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "switch", "type", "bridge")
        _run("ip", "address", "add", f"{_NETWORK}.1/24", "dev", "switch")
        _run("ip", "link", "set", "switch", "up")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._alive.close()

    def add(self) -> Node:
        """One more, until the end."""
        self._count += 1
        keeper = self._alive.enter_context(_keeper())
        prefix = ("nsenter", f"--net=/proc/{keeper.pid}/ns/net", "--")
        port, address = f"port{self._count}", f"{_NETWORK}.{1 + self._count}"
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "card", "netns", str(keeper.pid))
        _run("ip", "link", "set", port, "master", "switch", "up")
        _run(*prefix, "ip", "address", "add", f"{address}/24", "dev", "card")
        _run(*prefix, "ip", "link", "set", "card", "up")
        _run(*prefix, "ip", "link", "set", "lo", "up")
        way = (f"{_NETWORK}.0/24", "dev", "card", "src", address)
        _run(*prefix, "ip", "route", "change", *way, "congctl", "cubic")  # Linux's own, whatever is set here
        shape = ("tbf", "rate", self._rate, "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES))
        _run("tc", "qdisc", "add", "dev", port, "root", *shape)
        _run(*prefix, "tc", "qdisc", "add", "dev", "card", "root", *shape)
        return Node(address=address, prefix=prefix)


def _keeper() -> subprocess.Popen[bytes]:
    """A process in a network of its own, which stands there and answers once; it ends when this one does."""
    keeper = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    keeper.stdin.write(b"\n")
    keeper.stdin.flush()
    keeper.stdout.readline()
    return keeper


def _run(*argv: str) -> None:
    """Raises NoNodesError."""
    if problem := _problem(argv):
        raise NoNodesError(problem)


def _problem(argv: Sequence[str]) -> str:
    """What the command says against it; nothing: it is done."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_DEADLINE_S)
    return "" if done.returncode == 0 else f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}"
