"""The playground does what its page says, says what befalls it, and is gone when it says so."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.restart_policy import FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S, Pauses
from tests.cluster.workloads import job_of
from tests.harness.waiting import BUDGET_S, wait_for

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(r"^  (?P<line>\S.*?)(?:\s+# .*)?$", re.MULTILINE)
MOST_BESIDE_WEB = 8  # trainers of both jobs; which of them kube-scheduler takes is its own matter
REFUSED = {("False", "InvalidSpec"), ("False", "PodInvalid")}  # by EDL's own reading, or in the API server's words


@pytest.fixture
def playground(cluster_tools, tmp_path):
    """`playground("up")` is its exit code and what it says."""
    folder = tmp_path / "playground"

    def run(what):
        command = [sys.executable, "-m", "tests.cluster.playground", what, "--folder", str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=700)
        return done.returncode, done.stdout + done.stderr

    run.folder = folder
    yield run
    run("down")


class Terminal:
    """A newcomer's: what it exports stays for the lines that follow; the environment is otherwise a bare one."""

    def __init__(self, home):
        self.environ = {"PATH": os.defpath, "HOME": str(home)}
        self._log = home / "terminal.log"

    def type(self, line):
        """What the line says once it has ended.  It has to succeed."""
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environ[name] = value.replace("$PATH", self.environ["PATH"])
            return ""
        done = subprocess.run(
            words, cwd=ROOT, env=self.environ, capture_output=True, text=True, timeout=BUDGET_S, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    @contextmanager
    def watch(self, line):
        """Inside it the line runs; the value is a function that returns what it has said so far."""
        with self._log.open("w") as log:
            watching = subprocess.Popen(shlex.split(line), cwd=ROOT, env=self.environ, stdout=log, stderr=log)
        try:
            yield self._log.read_text
        finally:
            watching.send_signal(signal.SIGINT)
            watching.wait(BUDGET_S)


def trainers_of(said):
    """By job, in the order in which they were shown."""
    rows = [line.split() for line in said.splitlines() if line.startswith(("digits", "squares"))]
    return {job: [int(row[1]) for row in rows if row[0] == job and len(row) > 5] for job in ("digits", "squares")}


def test_a_newcomer_types_what_the_page_says_and_sees_jobs_shrink_and_grow(playground, tmp_path):
    """Line by line: the jobs grow, make way as the web rises, and come back as it falls."""
    code, told = playground("up")
    assert code == 0, told
    terminal = Terminal(tmp_path)
    sizes = []
    for line in SHOWN.findall(told.replace("\\\n", "")):  # a line that ends in a backslash goes on in the next
        if line == "kubectl edl page":
            with terminal.watch(line) as shown:
                wait_for("the address of the page", lambda: "http://127.0.0.1:" in shown())
            continue
        if not line.endswith(" -w"):
            said = terminal.type(line)
            assert said.count(" Ready ") == 8 or line != "kubectl get nodes"
            assert "trainers (2 to 8 allowed)" in said or "edl why" not in line
            continue
        wanted = {"digits": (8, 8), "squares": (6, 6)} if len(sizes) != 1 else {"digits": (2, 6), "squares": (2, 4)}
        with terminal.watch(line) as shown:
            wait_for(f"{line}: {wanted}", partial(_stand, shown, wanted))
            sizes.append(trainers_of(shown()))
    assert len(sizes) == 3
    assert max(sizes[1]["digits"]) == 8, "seen while it moves"
    assert playground("up") == (0, told)


def _stand(shown, wanted):
    """Each within its bounds, and both together no more than MOST_BESIDE_WEB where the web has what it wants."""
    now = trainers_of(shown())
    is_each = all(now[job] and low <= now[job][-1] <= high for job, (low, high) in wanted.items())
    has_web_room = wanted["digits"][0] > 2 or sum(now[job][-1] for job in wanted if now[job]) <= MOST_BESIDE_WEB
    return is_each and has_web_room


def test_it_runs_until_told_to_go(playground, control_plane):
    """A second `up` leaves it alone."""
    code, told = playground("up")
    assert code == 0, told
    keeper = int((playground.folder / "lock").read_text())
    assert playground("up") == (0, told)
    assert int((playground.folder / "lock").read_text()) == keeper
    assert playground("down")[0] == 0
    assert playground("status") == (1, "no playground runs; `make playground` starts one\n")
    assert not (playground.folder / "control-plane" / "etcd").exists()  # so it stopped everything in order


def test_an_operator_that_ends_is_started_again_and_said(playground):
    """And an API server that ends takes the playground along, with its last words."""
    code, told = playground("up")
    assert code == 0, told
    kubectl = [str(Path(json.loads((playground.folder / "state.json").read_text())["bin"]) / "kubectl")]
    kubectl += ["--kubeconfig", str(playground.folder / "control-plane" / "admin.kubeconfig"), "-n", "edl-system"]

    def lease():
        command = [*kubectl, "get", "lease", "edl-operator", "-o", "jsonpath={.spec.acquireTime}"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=BUDGET_S).stdout

    before = lease()
    os.kill(_pid_of(playground.folder, "operator"), signal.SIGKILL)
    wait_for("another one leads", lambda: lease() not in {before, ""})
    code, told = playground("status")
    assert code == 0
    assert "the operator has ended with code -9 and starts again in 1 s" in told

    os.kill(_pid_of(playground.folder / "control-plane", "kube-apiserver"), signal.SIGKILL)
    wait_for("it is over", lambda: playground("status")[0] == 1)
    assert "the playground has ended by itself" in playground("status")[1]


def test_poisoned_jobs_stop_neither_the_operator_nor_an_honest_job(playground):
    """The first ended the operator for all, again at each start; the second held up every other start (A11)."""
    code, told = playground("up")
    assert code == 0, told
    folder = playground.folder
    kubectl = [str(Path(json.loads((folder / "state.json").read_text())["bin"]) / "kubectl")]
    kubectl += ["--kubeconfig", str(folder / "control-plane" / "admin.kubeconfig")]

    def run(*words, stdin=None):
        return subprocess.run(
            [*kubectl, *words], input=stdin, capture_output=True, text=True, check=False, timeout=BUDGET_S
        )

    def ask(*words, stdin=None, code=0):
        done = run(*words, stdin=stdin)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def is_taken(body):
        return run("apply", "-f", "-", stdin=json.dumps(body)).returncode == 0

    def status(name):
        return json.loads(ask("get", f"tj/{name}", "-o", "json")).get("status", {})

    def admitted(name):
        found = (one for one in status(name).get("conditions", ()) if one["type"] == "Admitted")
        return next(((one["status"], one["reason"]) for one in found), None)

    def ready():
        return status("honest").get("trainers", {}).get("ready", 0)

    leads = ("get", "lease", "edl-operator", "-n", "edl-system", "-o", "jsonpath={.spec.acquireTime}")
    before, operator = ask(*leads), _pid_of(folder, "operator")
    digits, named = job_of("aaa-digits"), job_of("aaa-named")
    first = {"name": "first", "image": "x", "resources": {"requests": {"cpu": "9" * 5_000}}}
    digits["spec"]["trainer"]["template"]["spec"]["initContainers"] = [first]
    named["spec"]["master"]["template"]["spec"]["containers"][0]["name"] = "A_b"
    for body in (digits, named):
        assert "is invalid" in ask("apply", "-f", "-", stdin=json.dumps(body), code=1), "refused at the door"
    open_door(ask)
    for body in (digits, named, job_of("honest", maximum=4)):
        wait_for("the door is open", lambda body=body: is_taken(body))
    wait_for("the honest job grows", lambda: ready() == 4)
    wait_for("the first is told", lambda: admitted("aaa-digits") == ("False", "InvalidSpec"))
    wait_for("the second is told", lambda: admitted("aaa-named") in REFUSED)
    ask("scale", "tj/honest", "--replicas=2")
    wait_for("the honest job shrinks", lambda: ready() == 2)
    assert (ask(*leads), _pid_of(folder, "operator")) == (before, operator), "the same operator leads in the same term"
    assert "has ended" not in playground("status")[1]


def open_door(ask):
    """The definition takes everything once the API server heeds it: what it lets by is the operator's to judge."""
    definition = json.loads(ask("get", "crd/trainingjobs.edl.dev", "-o", "json"))
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    ask("replace", "-f", "-", stdin=json.dumps(definition))


def _pid_of(folder, program):
    """Of the process whose log lies in the folder."""
    log = os.fspath(folder / f"{program}.log")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "fd" / "2").readlink()) == log:
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(f"no process writes {log}")


def test_pauses_double_up_to_a_limit_and_begin_anew():
    """A program that ends at once and for ever is started once a minute; one that had recovered, at once."""
    pauses, waited = Pauses(), []
    for _ in range(9):
        pause_s, pauses = pauses.after(ran_s=0.5)
        waited.append(pause_s)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pauses.after(ran_s=STEADY_S)[0] == FIRST_PAUSE_S
    assert max(waited) == LONGEST_PAUSE_S
