"""The command `edl` against a real run in another process."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS
from autoscaler.clusters.local.control_plane.api_wire import LONGEST_CALL_BYTES, encode_call
from autoscaler.clusters.local.run_files.run_folder import RunFolder
from tests.harness.edl_command import (
    DEADLINE_S,
    EDL,
    FILES,
    PROGRAMS,
    EdlRun,
    edl,
    is_in_events,
    pid_of,
    ready_trainers,
    wait_until,
)

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(1)
"""


@pytest.fixture
def run(tmp_path):
    started = EdlRun(tmp_path, "--stay")
    yield started
    started.end()


def trainers(run):
    pods = run.get("pods")["items"]
    return [pid_of(p) for p in pods if p["metadata"].get("labels", {}).get("edl.dev/role") == "trainer"]


def nodes(run):
    return {p["spec"].get("nodeName") for p in run.get("pods")["items"]}


def is_alive(pid):
    with suppress(OSError):  # it may end between any two looks
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def test_a_run_is_asked_changed_and_stopped_from_other_terminals(run, tmp_path):
    """The whole conversation of a newcomer, in kubectl's words, with exit codes that scripts may rely on."""
    edl("wait", "--for=condition=Available", "deployment/web", "--timeout", "100s", run=run.folder)
    edl("wait", "--for=condition=Running", "tj/idle", "--timeout", "100s", run=run.folder)
    wait_until(lambda: ready_trainers(run.folder, "idle") == 2, "growth into free room")
    assert "idle" in edl("get", "tj", run=run.folder)
    assert "node-2" in edl("get", "nodes", "-o", "wide", run=run.folder)
    assert edl("get", "deployment", "web", "-o", "name", run=run.folder) == "deployment/web\n"
    assert "kind: TrainingJob" in edl("get", "tj/idle", "-o", "yaml", run=run.folder)
    log, hello = run.folder / "logs" / "idle-trainer-0.log", "hello from idle-trainer-0"
    wait_until(lambda: log.exists() and hello in log.read_text(), "its first words")
    assert hello in edl("logs", "tj/idle", "--trainer", "0", run=run.folder)

    assert "did you mean" in edl("get", "tjj", run=run.folder, code=2)
    assert "known here: idle" in edl("get", "tj/xyz", run=run.folder, code=3)
    assert "may have 1 to 3 trainers" in edl("scale", "tj/idle", "--trainers", "9", run=run.folder, code=4)
    assert "tj/idle has no parameter servers" in edl("scale", "tj/idle", "--servers", "2", run=run.folder, code=4)
    both = ("--servers", "2", "--trainers", "2")
    assert "tj/idle has no parameter servers" in edl("scale", "tj/idle", *both, run=run.folder, code=4)
    kept = json.loads(edl("get", "tj/idle", "-o", "json", run=run.folder))
    assert "replicas" not in kept["spec"]["trainer"], "all or nothing"
    assert "give one or the other" in edl("scale", "tj/idle", "--replicas", "2", *both, run=run.folder, code=2)
    assert (
        "was not completed"
        in edl("wait", "--for=condition=Completed", "tj/idle", "--timeout", "300ms", run=run.folder, code=5).lower()
    )

    assert "dry run" in edl("scale", "deployment/web", "--replicas", "2", "--dry-run", run=run.folder)
    assert run.get("deployment/web")["spec"]["replicas"] == 1
    edl("scale", "deployment/web", "--replicas", "2", run=run.folder)
    edl("wait", "--for=condition=Available", "deployment/web", "--timeout", "100s", run=run.folder)
    wait_until(lambda: ready_trainers(run.folder, "idle") == 1, "that it gives way")
    wait_until(lambda: "web-local-1" in edl("describe", "tj/idle", run=run.folder), "the reason")

    assert "tj/idle scaled to 3 trainers (1 now)" in edl("scale", "tj/idle", "--trainers", "3", run=run.folder)
    replaced = "replaces the resize to 3: 1 of 3 present"  # there is no room for more
    assert replaced in edl("scale", "tj/idle", "--trainers", "1", run=run.folder)
    wait_until(lambda: is_in_events(run.folder, replaced), "its event")
    assert replaced in edl("events", run=run.folder)
    edl("scale", "deployment", "web", "--replicas", "0", run=run.folder)
    assert run.get("tj/idle")["spec"]["trainer"]["replicas"] == 1
    before = trainers(run)
    assert "dry run" in edl("drain", "tj/idle", "--dry-run", run=run.folder)
    assert trainers(run) == before
    edl("drain", "tj/idle", run=run.folder)  # the only one
    wait_until(lambda: len(trainers(run)) == 1 and trainers(run) != before, "a new trainer in its place")
    wait_until(lambda: None not in nodes(run), "places for all")
    drained = min(nodes(run))
    (other,) = {"node-1", "node-2"} - {drained}
    edl("drain", f"node/{drained}", run=run.folder)
    wait_until(lambda: nodes(run) == {other}, "an empty node")
    edl("uncordon", f"node/{drained}", run=run.folder)
    moved = f"moves 1 trainer off {drained}, which is being drained"
    wait_until(lambda: is_in_events(run.folder, moved), "its event")
    assert moved in edl("events", run=run.folder)
    assert "Resized" in edl("events", "--json", run=run.folder)

    edl("suspend", "tj/idle", run=run.folder)
    wait_until(lambda: ready_trainers(run.folder, "idle") == 0, "that its trainers leave")
    kept = "tj/idle scaled to 2 trainers (0 now); the job is suspended: the size applies once it is resumed"
    assert kept in edl("scale", "tj/idle", "--trainers", "2", run=run.folder)
    assert run.get("tj/idle")["spec"]["trainer"]["replicas"] == 2
    edl("resume", "tj/idle", run=run.folder)
    wait_until(lambda: len(trainers(run)) == 2, "the size that was set meanwhile")

    edl("delete", "tj/idle", run=run.folder)
    edl("wait", "--for=delete", "tj/idle", "--timeout", "100s", run=run.folder)
    wait_until(lambda: not run.get("pods")["items"], "the end of its pods")
    assert "nothing there" in edl("get", "pods", run=run.folder)

    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(DEADLINE_S) == 130
    assert "is over" in edl("get", "tj", run=run.folder, code=3)
    assert json.loads((run.folder / "run.json").read_text())["ended"]

    archive = tmp_path / "report.tar.gz"
    edl("bundle", str(run.folder), "-o", str(archive))
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert {"run.json", "events.jsonl", "samples.jsonl", "idle-trainer-0.log", "versions.txt"} <= names
    assert "token" not in names


def test_ctrl_c_lets_everything_leave_in_order(run):
    """Trainers first, then the master; no process is left."""
    wait_until(lambda: len(run.pids()) >= 3, "the pods")
    pids = run.pids()
    run.process.send_signal(signal.SIGINT)
    output, _ = run.process.communicate(timeout=DEADLINE_S)
    assert run.process.returncode == 130
    (stopping,) = [line for line in output.splitlines() if " Stopping " in line]
    assert "Ctrl-C (SIGINT)" in stopping
    gone = [line for line in output.splitlines() if " Gone " in line]
    last = ("idle-trainer-0", "idle-master-local-0")
    order = [next(i for i, line in enumerate(gone) if name in line) for name in last]
    assert order == sorted(order)
    assert not [pid for pid in pids if is_alive(pid)]


def test_a_second_ctrl_c_kills_what_does_not_leave(tmp_path):
    """A trainer that ignores SIGTERM would have its whole grace; whoever presses twice does not wait for it."""
    deaf = tmp_path / "deaf.py"
    deaf.write_text(DEAF)
    files = FILES.replace("IDLE", str(deaf)).replace(
        "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 60"
    )
    run = EdlRun(tmp_path, "--stay", files=files)
    try:
        log = run.folder / "logs" / "idle-trainer-0.log"
        wait_until(lambda: log.exists() and "deaf" in log.read_text(), "the trainer")
        pids = run.pids()
        run.process.send_signal(signal.SIGINT)
        wait_until(lambda: '"Leaving"' in (run.folder / "events.jsonl").read_text(), "the first Ctrl-C")
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGINT)
        output, _ = run.process.communicate(timeout=DEADLINE_S)
        assert run.process.returncode == 130, output
        assert " GraceOver " not in output
        assert not [pid for pid in pids if is_alive(pid)]
    finally:
        run.end()


def test_kill_nine_of_the_run_leaves_no_process(run):
    """Not one pod outlives it."""
    wait_until(lambda: len(run.pids()) >= 3, "the pods")
    pids = run.pids()
    run.process.kill()
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], "the end of all pods")


def test_a_run_that_lost_its_supervisor_ends_and_says_so(run):
    """The pods die with the process that owns them; the run does not go on without."""
    wait_until(lambda: len(run.pids()) >= 3, "the pods")
    pids = run.pids()
    (supervisor,) = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    os.kill(int(supervisor), signal.SIGKILL)
    output, _ = run.process.communicate(timeout=DEADLINE_S)
    assert run.process.returncode == 1
    assert "edl: the process that owns the pods was killed" in output
    assert "Traceback" not in output
    wait_until(lambda: not [pid for pid in pids if is_alive(pid)], "the end of all pods")


def test_the_socket_is_for_its_owner_alone_and_bounded(run):
    """0600; a line without end is cut off, and the run goes on."""
    import socket  # noqa: PLC0415

    path = RunFolder(root=run.folder).control_socket()
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(path))
        rude.settimeout(DEADLINE_S)
        try:
            rude.sendall(b"x" * (2 * LONGEST_CALL_BYTES))
            answer = rude.recv(1 << 16)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert b'"result"' not in answer
    assert "idle" in edl("get", "tj", run=run.folder)


def test_who_watched_and_went_away_takes_no_place(run):
    """Where nothing changes nothing is said, so the run must notice the end of the one who asked."""
    import socket  # noqa: PLC0415

    bounds = {"since": "1", "timeout_s": 600, "silence_s": 600}
    request = encode_call("watch", DEPLOYMENTS, bounds)
    for _ in range(66):  # more than may ask at one time
        with socket.socket(socket.AF_UNIX) as watcher:
            watcher.connect(str(RunFolder(root=run.folder).control_socket()))
            watcher.settimeout(DEADLINE_S)
            watcher.sendall(request)
            assert b'"item"' in watcher.recv(1 << 16)
    assert "idle" in edl("get", "tj", run=run.folder)


def test_a_long_path_still_has_a_socket(tmp_path):
    """AF_UNIX takes 107 bytes."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    text = FILES.replace("IDLE", str(PROGRAMS / "idle.py")).replace("WEB", str(PROGRAMS / "web.py"))
    (deep / "job.yaml").write_text(text)
    argv = [EDL, "run", "job.yaml", "--json", "--no-etcd", "--stay"]
    with subprocess.Popen(argv, cwd=deep, stdout=subprocess.PIPE, text=True) as process:
        folder = Path(json.loads(process.stdout.readline())["run"])
        wait_until((folder / "s.path").exists, "the short path")
        wait_until(lambda: Path((folder / "s.path").read_text().strip()).exists(), "the socket")
        edl("wait", "--for=condition=Running", "tj/idle", "--timeout", "100s", run=folder)
        assert "idle" in edl("get", "tj", run=folder)
        process.send_signal(signal.SIGINT)
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait(DEADLINE_S) == 130
    assert lines[-1]["jobs"] == {"idle": "Running"}
    assert not Path((folder / "s.path").read_text().strip()).exists()


def test_refused_files_start_nothing(tmp_path):
    """Exit 4, every field at once, no run folder."""
    (tmp_path / "job.yaml").write_text(FILES.replace("minReplicas: 1", "minReplicas: 9").replace("web}", "Web}"))
    done = subprocess.run(
        [EDL, "run", "job.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 4
    assert "spec.trainer.minReplicas: 9 is larger than maxReplicas 3" in done.stderr
    assert "metadata.name" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_gpu_auto_without_a_driver_says_so(tmp_path):
    """A clear message, no traceback."""
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a driver")
    (tmp_path / "job.yaml").write_text(FILES.replace("IDLE", "x").replace("WEB", "y"))
    argv = [EDL, "run", "job.yaml", "--gpu", "auto"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 4
    assert "--gpu auto asks the NVIDIA driver" in done.stderr
    assert "Traceback" not in done.stderr


def test_more_gpus_than_a_run_can_number_are_refused_at_once(tmp_path):
    """Not after minutes, with the machine's memory full of numbers."""
    (tmp_path / "job.yaml").write_text(FILES.replace("IDLE", "x").replace("WEB", "y"))
    argv = [EDL, "run", "job.yaml", "--gpu", "1000000000"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 4
    assert "--gpu: the nodes have 4,000,000,000 GPUs together" in done.stderr


@pytest.mark.parametrize(
    "argv", [("run", "job.yaml", "--nodes", "2", "--gpu", "1"), ("launch", "--nodes", "2x4cpu,8Gi,1gpu", "train.py")]
)
def test_gpus_that_the_environment_withholds_are_not_taken(tmp_path, argv):
    """Two nodes of one GPU each, and the user may see one."""
    (tmp_path / "job.yaml").write_text(FILES.replace("IDLE", "x").replace("WEB", "y"))
    (tmp_path / "train.py").write_text("")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "3"}
    done = subprocess.run(
        [EDL, *argv], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 4, done.stderr
    assert "the nodes have 2 GPUs, and CUDA_VISIBLE_DEVICES='3' shows 1 to this run: lower --gpu" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    """For the three shells."""
    assert "_EDL_COMPLETE" in edl("completion", shell)


def test_help_loads_nothing_heavy():
    """`edl --help` stays below half a second because it imports no cluster, no gRPC, no pydantic, no archives."""
    code = "import sys; sys.argv=['edl','--help']\nimport autoscaler.cli.main\n"
    code += "heavy={'grpc','pydantic','rich','numpy','kopf','kubernetes','matplotlib','asyncio'}&set(sys.modules)\n"
    code += "heavy|={'email','tarfile'}&set(sys.modules)\n"
    code += "print(sorted(heavy)); raise SystemExit(bool(heavy-{'asyncio'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_reading_a_run_loads_no_manifests_and_no_planner(run):
    """`edl get` is asked again and again: without pydantic and numpy it begins in half the time."""
    code = "import sys; from autoscaler.cli.main import run_command\n"
    code += "sys.argv=['edl', 'get', 'tj']; code = run_command('edl')\n"
    code += (
        "heavy={'grpc','pydantic','yaml','rich','numpy','kopf','kubernetes','autoscaler.planner'}&set(sys.modules)\n"
    )
    code += "print(code, sorted(heavy)); raise SystemExit(bool(code or heavy))"
    environment = {**os.environ, "EDL_RUN": str(run.folder)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
