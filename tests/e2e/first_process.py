"""The first process of a node: `python -I -S first_process.py PLAN.json`, in fresh namespaces.

Lays out the node's own file system, waits for its network, enters that file system, and runs the node's programs in
it.  It collects the processes that containers leave behind, as every first process must.  When it ends, however it
ends, the kernel ends all that runs on the node.  A file by itself: it runs without the package, and imports nothing
after it has entered.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

POLL_S = 0.05
BUDGET_S = 180.0
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    root = Path(plan["root"])
    socket.sethostname(plan["name"])
    for command in plan["mounts"]:
        subprocess.run(command, check=True)
    wait("eth0", lambda: any(name == "eth0" for _, name in socket.if_nameindex()))
    for command in plan["network"]:
        subprocess.run(command, check=True)
    (root / "proc/sys/net/ipv4/ip_forward").write_text("1")
    enter(root)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    started = {}
    for program in plan["programs"]:
        started[start(program, plan["environ"])] = program["command"][0]
        if program["ready"]:
            wait(program["ready"], lambda path=program["ready"]: answers(path))
    collect(started)


def enter(root: Path) -> None:
    """Makes `root` the only file system that is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    (root / "old").mkdir()
    if libc.syscall(PIVOT_ROOT[os.uname().machine], bytes(root), bytes(root / "old")) != 0:
        raise OSError(ctypes.get_errno(), f"pivot_root {root}")
    os.chdir("/")
    if libc.umount2(b"/old", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount /old")
    Path("/old").rmdir()


def start(program: dict[str, Any], environ: dict[str, str]) -> int:
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, program["log"], append, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(program["command"][0], program["command"], environ, file_actions=actions)


def collect(started: dict[int, str]) -> None:
    """Until one of the node's own programs ends: then the node is of no use any more."""
    while True:
        pid, status = os.wait()
        if pid in started:
            print(f"{started[pid]} has ended with code {os.waitstatus_to_exitcode(status)}", flush=True)
            sys.exit(1)


def answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as opened:
        return opened.connect_ex(path) == 0


def wait(what: str, probe: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + BUDGET_S
    while not probe():
        if time.monotonic() > deadline_s:
            sys.exit(f"{what}: not there after {BUDGET_S} s")
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
