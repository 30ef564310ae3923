"""Runs etcd members on this machine: for the demo, `edl run`, and tests that kill them.

    async with start_etcd(binary, folder, members=3) as etcd:
        etcd.endpoints
        await etcd.members[0].kill()
        await etcd.members[0].start()

Members listen on loopback, keep their data in the folder over restarts, and die with this process.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from master.errors import EtcdStartError, PortInUseError, UnusableEtcdError
from master.etcd_server.finder import EtcdBinary

HOST: Final = "127.0.0.1"
PORT_RANGE: Final = range(20_000, 32_000)
TETHER: Final = Path(__file__).with_name("tether.py")
READY_BUDGET_S: Final = 20.0
READY_POLL_S: Final = 0.05
STOP_BUDGET_S: Final = 5.0
LOG_LINES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    client: int
    peer: int
    health: int  # plain HTTP, also where clients need TLS


class EtcdMember:
    """One etcd process.  `start` after `kill` or `stop` brings it back on the same data."""

    def __init__(self, name: str, ports: Ports, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.ports = ports
        self.log_file = folder / f"{name}.log"
        self._command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self.ports.client}"

    @property
    def pid(self) -> int:
        """Raises EtcdStartError when it does not run."""
        if self._process is None or self._process.returncode is not None:
            raise EtcdStartError(f"{self.name} does not run; its log is {self.log_file}")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of its last process, as `subprocess` has it; None: it runs, or has never been started."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """The process runs; it is not ready yet.  Raises PortInUseError."""
        for port in (self.ports.client, self.ports.peer, self.ports.health):
            _check_free(port)
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *self._command, stdout=log, stderr=log
            )

    async def wait_ready(self, budget_s: float = READY_BUDGET_S) -> None:
        """It serves reads and writes, so a majority of the members does.  Raises EtcdStartError with its last words."""
        try:
            async with asyncio.timeout(budget_s):
                while not await self.is_healthy():
                    if self._process is None or self._process.returncode is not None:
                        raise EtcdStartError(f"{self.name} has ended.\n{self._last_words()}")
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            raise EtcdStartError(f"{self.name} is not ready after {budget_s} s.\n{self._last_words()}") from None

    async def kill(self) -> None:
        """SIGKILL; afterwards it is gone.  Also when it was paused."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when it does not go."""
        try:
            async with asyncio.timeout(STOP_BUDGET_S):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self._process.wait()

    async def is_healthy(self) -> bool:
        """It serves reads and writes; one that is paused does not answer at all."""
        try:
            reader, writer = await asyncio.open_connection(HOST, self.ports.health)
        except OSError:
            return False
        try:
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            return b'"health":"true"' in await reader.read()
        except OSError:
            return False
        finally:
            writer.close()

    def _last_words(self) -> str:
        lines = without_stacks(self.log_file.read_text(errors="replace").splitlines())[-LOG_LINES:]
        return "\n".join([f"The end of {self.log_file}:", *lines])


def without_stacks(lines: Sequence[str]) -> list[str]:
    """Without the stacks that a panic ends with: the reason, such as a full disk, stands before them."""
    kept, is_stack = [], False
    for line in lines:
        is_stack = line.startswith("goroutine ") or (is_stack and not line.startswith("{"))
        if line and not is_stack:
            kept.append(line)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdCluster:
    """Members that run."""

    binary: EtcdBinary
    members: tuple[EtcdMember, ...]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)


@asynccontextmanager
async def start_etcd(
    binary: EtcdBinary,
    folder: Path,
    *,
    members: int = 1,
    ports: Sequence[Ports] = (),
    options: Sequence[str] = (),
    scheme: str = "http",
) -> AsyncIterator[EtcdCluster]:
    """A cluster that is ready, and gone again afterwards; its data stays in `folder`.

    `ports`: of each member, else free ones for `members`.  End its clients first: etcd waits for open streams before it
    goes.  On Linux members also die with the *thread* that started them, so start from the main one.

    Raises UnusableEtcdError (several members of a version that loses data), PortInUseError, EtcdStartError.
    """
    chosen = tuple(ports) or free_ports(members)
    if len(chosen) > 1 and not binary.version.keeps_promises:
        raise UnusableEtcdError(f"{binary} serves a demo of one member only")
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    cluster = EtcdCluster(binary=binary, members=_plan_members(binary, folder, chosen, scheme, options))
    try:
        for member in cluster.members:
            await member.start()
        for member in cluster.members:
            await member.wait_ready()
        yield cluster
    finally:
        await asyncio.gather(*(member.stop() for member in cluster.members))


def free_ports(members: int) -> tuple[Ports, ...]:
    """Ports that nobody listens on now.  Raises PortInUseError when there are not enough.

    Taken from below the range that the kernel gives to outgoing connections: one of those must not sit on a member's
    port while the member is restarted.
    """
    wanted = 3 * members
    with ExitStack() as held:
        numbers: list[int] = []
        for port in random.SystemRandom().sample(PORT_RANGE, k=len(PORT_RANGE)):
            if len(numbers) == wanted:
                break
            one = held.enter_context(socket.socket())
            with suppress(OSError):
                one.bind((HOST, port))
                numbers.append(port)
        else:
            raise PortInUseError(f"{HOST}, every port from {PORT_RANGE.start} to {PORT_RANGE.stop - 1},")
    return tuple(Ports(client=c, peer=p, health=h) for c, p, h in zip(*[iter(numbers)] * 3, strict=True))


def _plan_members(
    binary: EtcdBinary, folder: Path, ports: Sequence[Ports], scheme: str, options: Sequence[str]
) -> tuple[EtcdMember, ...]:
    names = [f"m{number}" for number in range(len(ports))]
    peers = ",".join(f"{name}=http://{HOST}:{one.peer}" for name, one in zip(names, ports, strict=True))
    members = []
    for name, one in zip(names, ports, strict=True):
        client, peer = f"{scheme}://{HOST}:{one.client}", f"http://{HOST}:{one.peer}"
        command = (
            str(binary.path),
            f"--name={name}",
            f"--data-dir={folder / name}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={peers}",
            f"--listen-metrics-urls=http://{HOST}:{one.health}",
            "--auto-compaction-retention=1",  # hours of history
            "--logger=zap",
            "--log-level=warn",
            *options,
        )
        members.append(EtcdMember(name, one, command, folder))
    return tuple(members)


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as etcd: a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise PortInUseError(f"{HOST}:{port}") from error
