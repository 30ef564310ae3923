"""Runs etcd members on this machine: for the demo, `edl run`, and tests that kill them.

    async with start_etcd(binary, folder, members=3) as etcd:
        etcd.endpoints
        await etcd.members[0].kill()
        await etcd.members[0].start()

Members listen on Unix sockets in a folder readable by their owner alone (ADR 0170), keep their data over restarts,
and die with this process.  With `ports` they listen on loopback instead: for tests of TLS, which names hosts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.etcd_server.errors import EtcdStartError, UnusableEtcdError
from autoscaler.etcd_server.finder import EtcdBinary
from autoscaler.etcd_server.member_addresses import HOST, MemberAddresses, MemberPorts, check_free, connect
from master.api.host.unix_sockets import make_socket_folder

DIE_WITH_PARENT: Final = Path(__file__).with_name("parent_death_signal.py")
OWNER_ALONE: Final = 0o077  # what a member creates, its sockets too
READY_BUDGET_S: Final = 60.0  # it begins within a second, but where the machine is busy
READY_POLL_S: Final = 0.05
STOP_BUDGET_S: Final = 5.0
LOG_LINES: Final = 8
NO_WEB_PAGES: Final = (
    "--enable-grpc-gateway=false",  # the JSON gateway, to which any web page in a local browser could write
    "--cors=http://localhost:1",  # no origin; an empty list would mean all
    f"--host-whitelist={HOST},localhost",
)
"""Options that switch off etcd's HTTP interfaces; EDL uses gRPC and the health endpoint."""


class EtcdMember:
    """One etcd process.  `start` after `kill` or `stop` brings it back on the same data."""

    def __init__(
        self, name: str, addresses: MemberAddresses, command: Sequence[str], folder: Path, working_dir: Path
    ) -> None:
        self.name = name
        self.addresses = addresses
        self.log_file = folder / f"{name}.log"
        self._command = tuple(command)
        self._working_dir = working_dir
        self._process: asyncio.subprocess.Process | None = None

    @property
    def endpoint(self) -> str:
        return self.addresses.client

    @property
    def pid(self) -> int:
        """Process id.  Raises EtcdStartError if the member does not run."""
        if self._process is None or self._process.returncode is not None:
            raise EtcdStartError(f"{self.name} does not run; its log is {self.log_file}")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of its last process, as in `subprocess`; None: it runs, or has never been started."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start the process, without waiting until it is ready.  Raises EtcdPortInUseError."""
        for address in self.addresses.all:
            check_free(address)
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), *self._command),
                cwd=self._working_dir,
                stdout=log,
                stderr=log,
                umask=OWNER_ALONE,
            )

    async def wait_ready(self, budget_s: float = READY_BUDGET_S) -> None:
        """Wait until the member serves reads and writes, which needs a majority.

        Raises EtcdStartError with the end of its log.
        """
        try:
            async with asyncio.timeout(budget_s):
                while not await self.is_healthy():
                    if self._process is None or self._process.returncode is not None:
                        raise EtcdStartError(f"{self.name} has ended.\n{self._last_words()}")
                    await asyncio.sleep(READY_POLL_S)
        except TimeoutError:
            raise EtcdStartError(f"{self.name} is not ready after {budget_s} s.\n{self._last_words()}") from None

    async def kill(self) -> None:
        """Kill the process (also a stopped one) and wait for its end."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End the process by SIGTERM, and by SIGKILL after a time."""
        try:
            async with asyncio.timeout(STOP_BUDGET_S):
                await self._end(signal.SIGTERM)
        except TimeoutError:
            await self.kill()

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self._process.wait()

    async def is_healthy(self) -> bool:
        """True if the member serves reads and writes; a paused one does not answer."""
        try:
            reader, writer = await connect(self.addresses.health)
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
    sockets: Path | None = None,
    ports: Sequence[MemberPorts] = (),
    options: Sequence[str] = (),
    scheme: str = "http",
) -> AsyncIterator[EtcdCluster]:
    """Run an etcd cluster inside the context; its data stays in `folder`.

    `sockets`: a private folder for the members' sockets; without it one is made, and removed at the end.  `ports`: of
    each member, which then listens on loopback in this `scheme`.  Close clients first: etcd waits for open streams
    before it ends.  On Linux members also die with the *thread* that started them, so start from the main one.

    Raises UnusableEtcdError (several members of a version that loses data), EtcdPortInUseError, EtcdStartError.
    """
    count = len(ports) or members
    if count > 1 and not binary.version.keeps_promises:
        raise UnusableEtcdError(f"{binary} serves a demo of one member only")
    folder = await asyncio.to_thread(_make_folder, folder)
    async with _sockets(folder, sockets, is_needed=not ports) as place:
        if ports:
            addresses = {f"m{number}": MemberAddresses.on_ports(one, scheme) for number, one in enumerate(ports)}
        else:
            addresses = {f"m{number}": MemberAddresses.in_folder(place, f"m{number}") for number in range(members)}
        cluster = EtcdCluster(binary=binary, members=_plan_members(binary, folder, place, addresses, options))
        async with _running(cluster.members):
            yield cluster


@asynccontextmanager
async def _sockets(folder: Path, named: Path | None, *, is_needed: bool) -> AsyncIterator[Path]:
    """The folder of the members' sockets, which is their working folder; one that was not named goes with them."""
    if named is not None or not is_needed:
        yield named or folder
        return
    made = await asyncio.to_thread(_make_sockets, folder)
    try:
        yield made
    finally:
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)


@asynccontextmanager
async def _running(members: Sequence[EtcdMember]) -> AsyncIterator[None]:
    try:
        for member in members:
            await member.start()
        for member in members:
            await member.wait_ready()
        yield
    finally:
        await asyncio.gather(*(member.stop() for member in members))


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _make_sockets(folder: Path) -> Path:
    shutil.rmtree(folder / "s", ignore_errors=True)  # of a process that was killed
    return make_socket_folder(folder / "s")


def _plan_members(
    binary: EtcdBinary,
    folder: Path,
    working_dir: Path,
    addresses: Mapping[str, MemberAddresses],
    options: Sequence[str],
) -> tuple[EtcdMember, ...]:
    peers = ",".join(f"{name}={one.url(one.peer)}" for name, one in addresses.items())
    members = []
    for name, one in addresses.items():
        client, peer = one.url(one.client), one.url(one.peer)
        command = (
            str(binary.path.absolute()),
            f"--name={name}",
            f"--data-dir={folder / name}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={peers}",
            f"--listen-metrics-urls={one.url(one.health)}",
            "--auto-compaction-retention=1",  # hours of history
            "--logger=zap",
            "--log-level=warn",
            *NO_WEB_PAGES,
            *options,
        )
        members.append(EtcdMember(name, one, command, folder, working_dir))
    return tuple(members)
