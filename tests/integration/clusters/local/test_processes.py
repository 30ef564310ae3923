"""Real processes: what starts, what ends, and that nothing outlives the run."""

import asyncio
import dataclasses
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from autoscaler.clusters.local.machine.processes import Command, ProcessEnd, Processes, StartError

DEADLINE_S = 120.0


def command(tmp_path, *argv, **env):
    return Command(argv=argv, env={"PATH": os.environ["PATH"], **env}, cwd=tmp_path, log=tmp_path / "pod.log")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or before it was read
        return False


def open_files(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


class Ends:
    """Collects the ends of processes."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def __call__(self, ended: ProcessEnd):
        self.queue.put_nowait(ended)

    async def next(self) -> ProcessEnd:
        return await asyncio.wait_for(self.queue.get(), DEADLINE_S)


@pytest.fixture
async def running():
    ends = Ends()
    async with Processes(on_end=ends) as processes:
        yield processes, ends


async def test_a_process_runs_with_its_environment_and_its_end_is_told(running, tmp_path):
    """Output goes to the log, the exit code to the run; the run's own environment does not leak in."""
    processes, ends = running
    pid = await processes.start("a", command(tmp_path, "sh", "-c", "echo $WORD; env | wc -l; exit 3", WORD="hello"))
    assert await ends.next() == ProcessEnd(key="a", pid=pid, code=3)
    assert (tmp_path / "pod.log").read_text().splitlines()[0] == "hello"
    assert not processes.is_running("a")


async def test_a_full_disk_costs_lines_of_the_log_and_not_the_process(running, tmp_path, caplog):
    """A write that fails ends a script that prints; training needs no log (ADR 0321)."""
    processes, ends = running
    program = "for _ in range(100): print('x' * 10_000, flush=True)"
    full = dataclasses.replace(command(tmp_path, sys.executable, "-c", program), log=Path("/dev/full"))
    await processes.start("a", full)

    assert (await ends.next()).code == 0
    assert [record.getMessage() for record in caplog.records] == [
        "/dev/full cannot be written: No space left on device; its process goes on, and lines are missing there"
    ]


async def test_a_log_says_what_is_missing_once_the_disk_has_room(running, tmp_path, caplog):
    """As soon as something can be written again, and it goes on with what came then."""
    processes, ends = running
    script = "until [ -e full ]; do sleep 0.01; done; head -c 150 /dev/zero; until [ -e room ]; do sleep 0.01; done"
    await processes.start("a", command(tmp_path, "sh", "-c", f"{script}; echo after"))
    _, hard = resource.prlimit(processes.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(processes.pid, resource.RLIMIT_FSIZE, (100, hard))  # it has imported all that it needs
    (tmp_path / "full").touch()
    log = tmp_path / "pod.log"
    await asyncio.to_thread(wait_until, lambda: "File too large" in caplog.text)
    resource.prlimit(processes.pid, resource.RLIMIT_FSIZE, (hard, hard))
    (tmp_path / "room").touch()

    assert (await ends.next()).code == 0
    assert log.read_bytes() == bytes(100) + b"\n[edl: 50 bytes are missing: File too large]\nafter\n"


async def test_the_log_has_all_that_an_ended_process_wrote(running, tmp_path):
    """Its end is told when the log is complete: the run reads the reason there."""
    processes, ends = running
    await processes.start("a", command(tmp_path, sys.executable, "-c", "print('x' * 50_000); print('why')"))
    await ends.next()

    assert (tmp_path / "pod.log").read_text().splitlines() == ["x" * 50_000, "why"]


WHILE_STOPPED = """
import fcntl, os, pathlib, signal, sys, time
while not pathlib.Path("go").exists():
    time.sleep(0.01)
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 18)
print("x" * 100_000, flush=True)  # more than one read of the supervisor
pathlib.Path("done").touch()
time.sleep(float(sys.argv[1]))
"""


async def test_what_a_full_disk_costs_an_ended_process_is_told(running, tmp_path, caplog):
    """Also where it is first met after the end."""
    processes, ends = running
    pid = await processes.start("a", command(tmp_path, sys.executable, "-c", WHILE_STOPPED, "0"))
    _, hard = resource.prlimit(processes.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(processes.pid, resource.RLIMIT_FSIZE, (80_000, hard))
    os.kill(processes.pid, signal.SIGSTOP)
    (tmp_path / "go").touch()
    await asyncio.to_thread(wait_until, lambda: not is_alive(pid))
    os.kill(processes.pid, signal.SIGCONT)

    assert (await ends.next()).code == 0
    assert "pod.log cannot be written: File too large" in caplog.text


def test_the_log_has_all_that_was_written_when_the_run_ended(tmp_path):
    """What a pod said last may be why the run ended."""
    mine, theirs = socket.socketpair()
    argv = [sys.executable, "-P", "-m", "autoscaler.clusters.local.machine.pod_supervisor", str(theirs.fileno())]
    pod = {"argv": [sys.executable, "-c", WHILE_STOPPED, "100"], "env": {}, "cwd": str(tmp_path)}
    order = {"op": "start", "key": "a", "log": str(tmp_path / "pod.log"), **pod}
    with subprocess.Popen(argv, pass_fds=[theirs.fileno()]) as supervisor:
        try:
            with mine, theirs:
                mine.sendall(json.dumps(order).encode() + b"\n")
                assert "pid" in json.loads(mine.recv(4096))
                supervisor.send_signal(signal.SIGSTOP)
                (tmp_path / "go").touch()
                wait_until((tmp_path / "done").exists)
            supervisor.send_signal(signal.SIGCONT)
            assert supervisor.wait(DEADLINE_S) == 0
        finally:
            supervisor.kill()
    assert (tmp_path / "pod.log").stat().st_size == 100_001


async def test_the_supervisor_may_open_more_files_than_a_pod(tmp_path):
    """Each pod costs the supervisor two descriptors; a pod has the limit that the run was started with."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    ends = Ends()
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        async with Processes(on_end=ends) as processes:
            await processes.start("a", command(tmp_path, "sh", "-c", "ulimit -n"))
            await ends.next()
            limit = resource.prlimit(processes.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (tmp_path / "pod.log").read_text() == f"{before[0] - 1}\n"
    assert limit == (before[1], before[1])


async def test_a_process_that_escapes_its_pod_costs_no_descriptors(running, tmp_path):
    """A crash loop of such pods would leave none to the others."""
    processes, ends = running
    await processes.start("a", command(tmp_path, "true"))
    await ends.next()
    before = open_files(processes.pid)
    stray = "env -i PATH=$PATH setsid sh -c 'touch escaped; exec sleep 100' &"
    await processes.start("b", command(tmp_path, "sh", "-c", f"{stray} until [ -e escaped ]; do sleep 0.01; done"))
    await ends.next()

    assert open_files(processes.pid) == before


async def test_a_signal_reaches_the_whole_group(running, tmp_path):
    """SIGTERM ends a shell and what it waits for."""
    processes, ends = running
    await processes.start("a", command(tmp_path, "sh", "-c", "sleep 100 & echo $!; wait"))
    await asyncio.to_thread(wait_until, lambda: (tmp_path / "pod.log").read_text().strip().isdigit())
    processes.signal("a", signal.SIGTERM)
    assert (await ends.next()).code == -signal.SIGTERM
    await asyncio.to_thread(wait_until, lambda: not is_alive(int((tmp_path / "pod.log").read_text())))


async def test_what_a_pod_leaves_behind_goes_with_it(running, tmp_path):
    """A pod has ended when nothing of its group runs."""
    processes, ends = running
    await processes.start("a", command(tmp_path, "sh", "-c", "sleep 100 & echo $!"))
    assert (await ends.next()).code == 0
    await asyncio.to_thread(wait_until, lambda: not is_alive(int((tmp_path / "pod.log").read_text())))


SETSID = """
import os, subprocess, sys, threading, time
def start():
    child = subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True)
    print(child.stdout.readline().decode(), child.pid, flush=True)  # both run before this process may end
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(float(sys.argv[1]))
"""


@pytest.mark.parametrize("is_killed", [True, False])
async def test_children_in_sessions_of_their_own_end_with_their_pod(running, tmp_path, is_killed):
    """Killed or ended by itself; those of another pod are left alone."""
    processes, ends = running
    other = Command(
        argv=["sh", "-c", "setsid sleep 100 & echo $!; wait"],
        env={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        log=tmp_path / "other.log",
    )
    await processes.start("b", other)
    await processes.start("a", command(tmp_path, sys.executable, "-c", SETSID, "100" if is_killed else "0.2"))
    await asyncio.to_thread(wait_until, lambda: len((tmp_path / "pod.log").read_text().split()) == 2)
    await asyncio.to_thread(wait_until, lambda: (tmp_path / "other.log").read_text().strip().isdigit())
    if is_killed:
        processes.signal("a", signal.SIGKILL)
    assert (await ends.next()).key == "a"
    left = [int(pid) for pid in (tmp_path / "pod.log").read_text().split()]
    await asyncio.to_thread(wait_until, lambda: not any(is_alive(pid) for pid in left))
    assert is_alive(int((tmp_path / "other.log").read_text()))
    assert processes.is_running("b")


async def test_a_command_that_does_not_exist_is_an_error_with_its_name(running, tmp_path):
    """The user reads what is missing; nothing runs."""
    processes, _ = running
    with pytest.raises(StartError, match="no-such-program"):
        await processes.start("a", command(tmp_path, "no-such-program"))
    assert not processes.is_running("a")


async def test_the_end_of_the_run_ends_what_ignores_signals(tmp_path):
    """Leaving the context kills, grandchildren in sessions of their own included."""
    script = "import os,signal,subprocess,sys,time;signal.signal(15,signal.SIG_IGN);"
    script += (
        "p=subprocess.Popen(['sleep','100'],start_new_session=True);print(os.getpid(),p.pid,flush=True);time.sleep(100)"
    )
    async with Processes(on_end=lambda _: None) as processes:
        await processes.start("a", command(tmp_path, sys.executable, "-c", script))
        await asyncio.to_thread(wait_until, lambda: len((tmp_path / "pod.log").read_text().split()) == 2)
    pids = [int(pid) for pid in (tmp_path / "pod.log").read_text().split()]
    await asyncio.to_thread(wait_until, lambda: not any(is_alive(pid) for pid in pids))


RUN = """
import asyncio, sys
from pathlib import Path
from autoscaler.clusters.local.machine.processes import Command, Processes

async def main():
    async with Processes(on_end=lambda _: None) as processes:
        folder = Path(sys.argv[1])
        argv = ["sh", "-c", "trap '' TERM; sleep 100 & echo $$ $!; wait"]
        log = folder / "pod.log"
        await processes.start("a", Command(argv=argv, env={"PATH": "/usr/bin:/bin"}, cwd=folder, log=log))
        print(processes.pid, flush=True)
        await asyncio.sleep(100)

asyncio.run(main())
"""


@pytest.mark.parametrize("victim", ["run", "supervisor"])
def test_kill_nine_leaves_nothing_behind(tmp_path, victim):
    """Neither of the run nor of the supervisor: the pods end with either."""
    (tmp_path / "pod.log").touch()
    argv = [sys.executable, "-c", textwrap.dedent(RUN), str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
        try:
            supervisor = int(run.stdout.readline())
            wait_until(lambda: len((tmp_path / "pod.log").read_text().split()) == 2)
            pods = [int(pid) for pid in (tmp_path / "pod.log").read_text().split()]
            os.kill(run.pid if victim == "run" else supervisor, signal.SIGKILL)
            wait_until(lambda: not is_alive(pods[0]))
            if victim == "run":
                wait_until(lambda: not is_alive(pods[1]) and not is_alive(supervisor))
        finally:
            run.kill()
    for pid in pods:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


async def test_an_end_that_cannot_be_handled_is_told(tmp_path):
    """No later end would be heard of: the run must know, not wait for ever."""
    told = asyncio.get_running_loop().create_future()

    def fail(_):
        raise LookupError("a bug")

    async with asyncio.timeout(DEADLINE_S), Processes(on_end=fail, on_lost=told.set_result) as processes:
        await processes.start("a", command(tmp_path, "true"))
        assert isinstance(await told, LookupError)
