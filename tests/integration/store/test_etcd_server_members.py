"""Members that run: their ports, their end, their refusals."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.etcd_server.cache import exclusive
from autoscaler.etcd_server.errors import EtcdBuildError, EtcdPortInUseError, EtcdStartError, UnusableEtcdError
from autoscaler.etcd_server.etcd_members import start_etcd
from autoscaler.etcd_server.etcd_versions import DEMO
from autoscaler.etcd_server.finder import BinaryOrigin, EtcdBinary, find_etcd
from tests.harness.free_ports import free_ports


async def test_port_that_is_taken_is_named(etcd_binary, tmp_path):
    """EtcdPortInUseError with the address, and nothing is left running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = replace(free_ports(1)[0], peer=taken.getsockname()[1])
        with pytest.raises(EtcdPortInUseError, match=f"127.0.0.1:{ports.peer}"):
            async with start_etcd(etcd_binary, tmp_path, ports=[ports]):
                pass


async def test_member_that_cannot_start_says_why(etcd_binary, tmp_path):
    """The end of its log is in the error."""
    (tmp_path / "m0").write_text("no folder")
    with pytest.raises(EtcdStartError, match="not a directory"):
        async with start_etcd(etcd_binary, tmp_path):
            pass


async def test_version_that_loses_data_runs_alone_only(tmp_path):
    """Nobody builds a cluster of 3.5.1."""
    demo = EtcdBinary(path=Path("etcd"), version=DEMO, origin=BinaryOrigin.DEMO_WHEEL)
    with pytest.raises(UnusableEtcdError, match="one member"):
        async with start_etcd(demo, tmp_path, members=3):
            pass


async def test_member_dies_with_the_process_that_started_it(etcd_binary, tmp_path):
    """SIGKILL of the parent leaves no etcd behind."""
    script = f"""
        import asyncio
        from pathlib import Path
        from autoscaler.etcd_server.etcd_members import start_etcd
        from autoscaler.etcd_server.finder import BinaryOrigin, inspect

        async def main():
            binary = inspect(Path({str(etcd_binary.path)!r}), BinaryOrigin.CACHE)
            async with start_etcd(binary, Path({str(tmp_path)!r})) as etcd:
                print(etcd.members[0].pid, flush=True)
                await asyncio.sleep(60)

        asyncio.run(main())
    """
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", textwrap.dedent(script), stdout=subprocess.PIPE)
    async with asyncio.timeout(120):
        member = int(await parent.stdout.readline())
        os.kill(member, 0)
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        while is_running(member):  # noqa: ASYNC110  # another process's end sets no event
            await asyncio.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_two_builders_wait_for_each_other(tmp_path):
    """The second waits until the first has ended, even by SIGKILL."""
    script = f"""
        import time
        from pathlib import Path
        from autoscaler.etcd_server.cache import exclusive
        with exclusive(Path({str(tmp_path)!r}), print):
            print("held", flush=True)
            time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        said = []

        def say(line):
            said.append(line)
            first.kill()

        with exclusive(tmp_path, say):
            assert first.wait(60) == -signal.SIGKILL, "it had not ended"
    assert len(said) == 1


def test_machine_without_go_or_network_is_told_what_to_do(tmp_path, monkeypatch):
    """No etcd, no Go, no wheel: one error that names the three ways out."""

    def refuse(*_):
        raise EtcdBuildError("no way to the wheel")

    monkeypatch.setattr("autoscaler.etcd_server.build.install_wheel", refuse)
    environ = {"PATH": str(tmp_path), "EDL_CACHE_DIR": str(tmp_path / "cache")}
    with pytest.raises(UnusableEtcdError, match="EDL_ETCD, or install Go"):
        find_etcd(allow_demo_version=False, environ=environ, report=lambda _: None)
