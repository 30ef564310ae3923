"""Attacks on a local run by another user of the machine: the run's ports, and a process of user nobody."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.harness.edl_command import PROGRAMS

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="SECURITY NOT TESTED: only root can become another user; run this as root"
)


@contextmanager
def open_folder():
    """A folder that every user may read; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def attack(**targets):
    """What user nobody could read or do."""
    asked = json.dumps({kind: [str(one) for one in some] for kind, some in targets.items()})
    argv = [sys.executable, "-I", str(PROGRAMS / "stranger.py")]
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def family_of(pid):
    """The process and its descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def listening_ports(pids):
    """TCP ports on which one of the processes listens."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            local, state, inode = line.split()[1], line.split()[3], line.split()[9]
            if state == "0A" and inode in inodes:
                ports.add(int(local.rpartition(":")[2], 16))
    return ports
