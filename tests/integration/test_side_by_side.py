"""`make test` runs its parts beside one another: one verdict, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from autoscaler.etcd_server.build import CHECKOUT
from tests.side_by_side import (
    OF_CLUSTER,
    OF_MEMBERS,
    OF_PROCESSES,
    OF_PROTOCOL,
    Part,
    SideBySide,
    lint,
    outside_parts,
    parts,
)
from tests.slowest import MARK, busiest_lines, slowest_lines

DEADLINE_S = 100.0


def python(name, program, **more):
    return Part(name=name, command=(sys.executable, "-c", textwrap.dedent(program)), **more)


def run(*these):
    lines = []
    return SideBySide(lines.append).run(these), lines


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(probe):
    until_s = time.monotonic() + DEADLINE_S
    while not probe():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_one_that_fails_decides_and_the_others_end_in_their_own_time():
    failing = python("one", "print('FAILED tests/x.py::test_a[b c] - it was 3'); raise SystemExit(1)")
    code, lines = run(failing, python("two", "import time; time.sleep(0.5); print('== 7 passed ==')"))
    assert code == 1
    assert "two       | == 7 passed ==" in lines
    assert lines[-2].endswith("7 passed")
    assert lines[-1].endswith("pytest 'tests/x.py::test_a[b c]'")


def test_what_took_longest_and_the_cpu_time_are_told_at_the_end():
    """Beside the last words of the part, which stay what they are; its lines are not told twice."""
    busy = f"""
        import time
        while time.process_time() < 2.0:
            pass
        print("== 7 passed ==")
        print({MARK!r} + "  12.0 s  tests/x.py")
    """
    code, lines = run(python("one", busy), python("two", "print('== 1 passed ==')"))
    assert code == 0
    assert [line for line in lines if "12.0 s" in line] == ["one       slowest 12.0 s  tests/x.py"]
    cpu_s, other_s = (float(line.split("CPU")[1].split()[0]) for line in lines[-2:])
    assert cpu_s >= 2.0 > other_s
    assert lines[-2].endswith("code 0  7 passed")


def test_slowest_files_then_slowest_tests():
    """A file has the time of all phases of its tests; what takes less than a second is not told."""
    phases = [
        ("a.py::one", 2.0),
        ("a.py::one", 0.5),
        ("a.py::two", 2.0),
        ("b.py::three[x::y]", 3.0),
        ("c.py::four", 0.9),
    ]
    said = [line.removeprefix(MARK).split(" s  ") for line in slowest_lines(phases, count=2)]
    assert [(float(took), name) for took, name in said] == [
        (4.5, "a.py"),
        (3.0, "b.py"),
        (3.0, "b.py::three[x::y]"),
        (2.5, "a.py::one"),
    ]


def test_who_used_most_cpu_time_is_told():
    """Of what comes before the tests, too."""
    lines = busiest_lines(Counter({"a.py": 2.0, "importing": 30.25, "b.py": 0.9, "c.py": 1.5}), count=2)
    assert lines == [f"{MARK}  30.2 s CPU  importing", f"{MARK}   2.0 s CPU  a.py"]


@pytest.mark.parametrize(("codes", "verdict"), [((0, 0), 0), ((0, 5), 0), ((5, 5), 1), ((0, 2), 1), ((0, -9), 1)])
def test_verdict(codes, verdict):
    """A part in which nothing was chosen says nothing against the others; all together it does."""
    program = "import os; os._exit({0}) if {0} >= 0 else os.kill(os.getpid(), -{0})"
    assert run(*(python(str(code), program.format(code)) for code in codes))[0] == verdict


def test_what_a_part_leaves_behind_is_ended():
    """Its output would stay open for many minutes."""
    program = """
        import subprocess, sys
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        print("left", left.pid)
    """
    code, lines = run(python("one", program))
    assert code == 0
    pid = next(int(line.split()[-1]) for line in lines if "left" in line)
    wait_until(lambda: not is_alive(pid))


NICENESS = """
    import os, pathlib, time
    def niceness(of=0):
        return os.getpriority(os.PRIO_PROCESS, of)
    def groups_niceness():
        group = pathlib.Path("/proc/self/autogroup")
        return group.read_text().split()[-1] if group.exists() else "none"
    wanted = min(niceness(os.getppid()) + {lower}, 19)
    def is_set():
        return niceness() >= wanted and groups_niceness() in ("none", str(wanted))
    until_s = time.monotonic() + 60
    while {lower} and not is_set() and time.monotonic() < until_s:
        time.sleep(0.01)  # it is set once the process runs, and its session's after that
    print("nice", niceness(), groups_niceness())
"""


def test_what_computes_gives_way():
    """Its processes, and its session where the kernel weighs those."""
    first, second = (NICENESS.format(lower=lower) for lower in (0, 10))
    _, lines = run(python("one", first), python("two", second, gives_way=True))
    (one, one_group), (two, two_group) = (line.split()[-2:] for line in sorted(lines) if "| nice" in line)
    assert int(two) == min(int(one) + 10, 19)
    assert (one_group, two_group) == ("none", "none") or int(two_group) >= int(one_group) + 10


TIDY = """
    import os, time
    try:
        print("pid", os.getpid(), flush=True)
        while True:  # a signal just before one long sleep would be heeded after it
            time.sleep(0.05)
    finally:
        print("tidied", flush=True)
"""
STUBBORN = """
    import os, signal, time
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"not now\\n"))
    print("pid", os.getpid(), flush=True)
    while True:
        time.sleep(0.05)
"""
OWNER = """
    import os
    import sys
    from tests import side_by_side
    from tests.side_by_side import Part, SideBySide
    side_by_side.LEAVE_BUDGET_S = 1000.0
    these = [Part(name=name, command=(sys.executable, "-c", sys.argv[1])) for name in "ab"]
    sys.exit(SideBySide(lambda line: os.write(1, f"{line}\\n".encode())).run(these))
"""


@contextmanager
def started(program):
    """Who runs two such parts, and their process ids.  It is killed on the way out, where it still runs."""
    command = [sys.executable, "-c", textwrap.dedent(OWNER), textwrap.dedent(program)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            yield owner, [int(owner.stdout.readline().split()[-1]) for _ in range(2)]
        finally:
            owner.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_parts_tidy_up_and_are_gone(number):
    with started(TIDY) as (owner, pids):
        owner.send_signal(number)
        said, _ = owner.communicate(timeout=DEADLINE_S)
    assert owner.returncode == 128 + number
    assert said.count("tidied") == 2
    assert not any(is_alive(pid) for pid in pids)


def test_a_second_interrupt_ends_those_that_do_not_heed_the_first():
    with started(STUBBORN) as (owner, pids):
        owner.send_signal(signal.SIGINT)
        assert all("not now" in owner.stdout.readline() for _ in pids)  # two that are pending at once would be one
        owner.send_signal(signal.SIGINT)
        owner.communicate(timeout=DEADLINE_S)
    assert owner.returncode == 130
    assert not any(is_alive(pid) for pid in pids)


def test_nothing_is_left_when_it_is_killed():
    with started(STUBBORN) as (owner, pids):
        owner.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_every_test_is_in_one_part(pytestconfig):
    """`cluster` or not; of the others folders, one of them in two halves, and the rest."""
    told = {part.name: part.command[part.command.index("tests.slowest") + 2 :] for part in parts(is_quick=False)}
    others = ("-m", "not cluster")
    assert told == {
        "cluster": ("-m", "cluster", *OF_CLUSTER),
        "members": (*others, *OF_MEMBERS),
        "runs": (*others, *(f"--ignore={one}" for one in OF_MEMBERS), *OF_PROCESSES),
        "protocol": (*others, OF_PROTOCOL),
        "computing": (*others, *(f"--ignore={one}" for one in (*OF_PROCESSES, OF_PROTOCOL)), "tests"),
    }
    assert "cluster" not in {part.name for part in parts(is_quick=True)}
    folders = (*OF_CLUSTER, *OF_MEMBERS, *OF_PROCESSES, OF_PROTOCOL)
    assert all((pytestconfig.rootpath / folder).is_dir() for folder in folders)
    assert all(folder.startswith("tests/integration/") for folder in OF_MEMBERS)


def would_run(*command):
    """The commands of this call of make, which is told nothing by the make that these tests run under."""
    told = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "ARGS", "QUICK")
    environment = {name: value for name, value in os.environ.items() if name not in told}
    return subprocess.run(
        [*command, "-n"], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_lint_runs_beside_the_tests():
    """`make test` no longer waits for it, so it must be a part; with ARGS it comes first."""
    assert all(what in would_run(*lint().command) for what in ("/ruff check .", "/mypy"))
    assert "/mypy" in would_run("make", "test", "ARGS=-x")
    shown = would_run("make", "test")
    assert "tests.side_by_side" in shown
    assert "/mypy" not in shown


def test_a_test_of_the_cluster_outside_its_folders_is_refused():
    """No part would run it: collecting it is an error (tests/conftest.py)."""
    right = [f"{folder}/test_a.py::test_b" for folder in OF_CLUSTER]
    assert outside_parts([*right, "tests/unit/test_a.py::test_b", "tests/clusters/test_c.py::test_d"]) == [
        "tests/unit/test_a.py::test_b",
        "tests/clusters/test_c.py::test_d",
    ]
