"""`python -m tests.cluster.playground up|status|down`: the test cluster for people, which runs until `down`.

A control plane and eight nodes with GPUs, which run nothing, with EDL's chart installed and its operator at work: as a
process with the token of the chart's account, since no container runs there.  A keeper process holds it all: it writes
what one needs to know into `state.json` when everything is ready, starts an operator that has ended again, and takes
everything along when it ends.  `make playground` and `make playground-down` call this.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from autoscaler.etcd_server.build import CHECKOUT
from autoscaler.etcd_server.cache import cache_folder
from tests.cluster.accounts import open_client, write_account_kubeconfig
from tests.cluster.chart_control_plane import ACCOUNT, CHART, IMAGES, NAMESPACE
from tests.cluster.control_plane import ControlPlane, start_control_plane
from tests.cluster.kwok_nodes import NodeShape, create_nodes
from tests.cluster.restart_policy import Restarting
from tests.cluster.stand_in_agents import StandInAgents
from tests.cluster.toolbox import find_tools
from tests.harness.errors import HarnessError
from tests.harness.free_ports import free_ports
from tests.harness.processes import Program

NODES: Final = {f"gpu-{number}": NodeShape(cpu="16", memory="64Gi", gpus=8) for number in range(1, 9)}
TOKEN_LIFETIME_S: Final = 7 * 86_400
OPERATOR_BUDGET_S: Final = 180.0
NO_ETCD: Final = "http://etcd.invalid:2379"  # masters run in name alone
VOLUME: Final = {
    "metadata": {"name": "checkpoints"},
    "spec": {
        "capacity": {"storage": "100Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/nothing"},
    },
}
"""For the examples' claim: nothing is ever written to it."""
RAISED: Final = 120
"""Web pods of one core each on 128 cores: the least that the two jobs need is left."""
NOTES_TOLD: Final = 5
UP_BUDGET_S: Final = 600.0
DOWN_BUDGET_S: Final = 120.0
OPERATOR_STOP_BUDGET_S: Final = 20.0
POLL_S: Final = 0.1


def up(folder: Path) -> int:
    """Start the playground and print what to type.  One that runs or starts already is left as it is."""
    keeper = None if _is_kept(folder) else _start_keeper(folder)
    deadline_s = time.monotonic() + UP_BUDGET_S
    while not _state_file(folder).is_file():
        if (keeper is not None and keeper.poll() is not None) or time.monotonic() > deadline_s:
            if keeper is not None:
                keeper.terminate()
            raise HarnessError(f"the playground did not start:\n{_log_file(folder).read_text()}")
        time.sleep(POLL_S)
    return _tell(folder)


def _start_keeper(folder: Path) -> subprocess.Popen[bytes]:
    find_tools(os.environ)  # raises here rather than in the keeper
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _log_file(folder).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.playground", "keep", "--folder", str(folder)],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt at the terminal does not reach it
        )


def status(folder: Path) -> int:
    """What to type, or 1 when nothing runs."""
    if _is_kept(folder):
        return _tell(folder)
    last = _log_file(folder).read_text(errors="replace").strip() if _log_file(folder).is_file() else ""
    if last:
        print(f"the playground has ended by itself:\n{last}\n")
    print("no playground runs; `make playground` starts one")
    return 1


def down(folder: Path) -> int:
    """Stop every process of the playground."""
    if not _is_kept(folder):
        print("no playground runs")
        return 0
    pid = int((folder / "lock").read_text())
    os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + DOWN_BUDGET_S
    while _is_kept(folder):
        if time.monotonic() > deadline_s:
            os.kill(pid, signal.SIGKILL)  # its processes are tethered to it
            break
        time.sleep(POLL_S)
    print("the playground is gone")
    return 0


def keep(folder: Path) -> int:
    """The keeper: everything runs until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    with _locked(folder), start_control_plane(folder / "control-plane", find_tools(os.environ)) as control_plane:
        with open_client(control_plane.kubeconfig) as api:
            create_nodes(api, NODES)
            operator = install_edl(control_plane, api, folder, port=free_ports(1)[0].health, has_agents=True)
        written = folder / "state.json.new"
        written.write_text(
            json.dumps({"kubeconfig": str(control_plane.kubeconfig), "bin": _links(control_plane, folder)})
        )
        written.replace(_state_file(folder))
        operating = Restarting(operator, now_s=time.monotonic(), say=lambda words: _note(folder, words))
        with open_client(control_plane.kubeconfig) as api:
            agents = StandInAgents(api, {name: shape.gpus for name, shape in NODES.items()})
            try:
                while all(program.is_running for program in control_plane.programs.values()):
                    operating.look(time.monotonic())
                    _look(agents, folder)
                    time.sleep(1)
            finally:
                operator.stop(OPERATOR_STOP_BUDGET_S)
        print(control_plane.log_tail())
        return 1


def _look(agents: StandInAgents, folder: Path) -> None:
    try:
        agents.look(time.monotonic())
    except Exception as error:  # noqa: BLE001 - a playground without reports is one still
        _note(folder, f"reports on GPUs: {type(error).__name__}: {str(error)[:200]}")


def install_edl(
    control_plane: ControlPlane,
    api: client.ApiClient,
    folder: Path,
    *,
    port: int,
    more: Sequence[str] = (),
    has_agents: bool = False,
) -> Program:
    """The chart without pods of its own, and the operator that it would have run; it leads when this returns.

    It answers at the port; `more` are options of its command.  `has_agents`: reports on GPUs come from somewhere.
    """
    core: Any = client.CoreV1Api(api)
    core.create_persistent_volume(VOLUME)
    chart = ("install", "edl", str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    control_plane.helm(
        *(*chart, *IMAGES, "--set", "operator.replicas=0", "--set", f"etcd.external.endpoints={{{NO_ETCD}}}"),
        *("--set", f"agent.enabled={str(has_agents).lower()}"),
        *("--set", "operator.elasticServers=false"),  # no master runs here that could move a server's state
    )
    kubeconfig = write_account_kubeconfig(
        folder / "operator.kubeconfig",
        api,
        authority=control_plane.authority,
        namespace=NAMESPACE,
        account=ACCOUNT,
        lifetime_s=TOKEN_LIFETIME_S,
    )
    told = (
        f"EDL_GPU_REPORTS={str(has_agents).lower()}",
        "EDL_NAME=playground",
        "EDL_IMAGE=registry.example/edl/operator",
        f"EDL_ETCD_ENDPOINTS={NO_ETCD}",
    )
    edl = str(Path(sys.executable).with_name("edl"))
    flags = ("--lease", f"{NAMESPACE}/edl-operator", "--kubeconfig", str(kubeconfig), "--listen", f"127.0.0.1:{port}")
    operator = Program("operator", ["/usr/bin/env", *told, edl, "operator", *flags, *more], folder)
    operator.wait_ready(f"http://127.0.0.1:{port}/readyz", None, OPERATOR_BUDGET_S)
    return operator


def _links(control_plane: ControlPlane, folder: Path) -> str:
    """A folder for PATH, with kubectl and helm, `edl`, and kubectl's plugin of that name."""
    links = folder / "bin"
    links.mkdir()
    own = {name: Path(sys.executable).with_name(name) for name in ("edl", "kubectl-edl")}
    for name, program in {**{name: control_plane.layout.tools[name] for name in ("kubectl", "helm")}, **own}.items():
        (links / name).symlink_to(program)
    return str(links)


def _tell(folder: Path) -> int:
    state = json.loads(_state_file(folder).read_text())
    print(
        f"A control plane with {len(NODES)} nodes of 8 GPUs runs.  The nodes run nothing: pods only look alive.\n\n"
        f"  export KUBECONFIG={state['kubeconfig']}\n"
        f"  export PATH={state['bin']}:$PATH\n"
        "  kubectl get nodes\n"
        "  kubectl apply -f examples/kubernetes          # two training jobs beside a web service\n"
        "  kubectl get tj -w                             # they start and grow to MAX; Ctrl-C ends it\n"
        f"  kubectl scale deployment/web --replicas={RAISED}   # the web's load rises\n"
        "  kubectl get tj -w                             # training shrinks for it\n"
        "  kubectl edl why tj/digits                     # why this size, and what would give more\n"
        "  kubectl scale deployment/web --replicas=2     # it falls\n"
        "  kubectl get tj -w                             # and they come back\n"
        "  kubectl edl launch --trainers 1:16 --gpu 1 --image team/train:1 --checkpoint file:///tmp/train \\\n"
        "    --detach train.py                           # a job with GPUs; it needs no image here, nor a script\n"
        "  kubectl edl get gpus                          # who has each GPU; what it does is made up here\n"
        "  kubectl edl top                               # and who holds how many\n"
        "  kubectl edl page                              # all of it in a browser, live\n\n"
        f"`make playground-down` ends it; its logs are in {folder} and {folder / 'control-plane'}."
    )
    if _notes_file(folder).is_file():
        print("\n" + "\n".join(_notes_file(folder).read_text().splitlines()[-NOTES_TOLD:]))
    return 0


def _note(folder: Path, words: str) -> None:
    """Add a line to the notes that `up` and `status` print."""
    with _notes_file(folder).open("a") as notes:
        notes.write(f"{time.strftime('%H:%M:%S')} {words}\n")


def _notes_file(folder: Path) -> Path:
    return folder / "notes.txt"


def _state_file(folder: Path) -> Path:
    return folder / "state.json"


def _log_file(folder: Path) -> Path:
    return folder / "keeper.log"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Held while the keeper lives, however it ends: a process id in a file could be reused by another process."""
    with (folder / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _is_kept(folder: Path) -> bool:
    try:
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.playground", description=__doc__)
    parser.add_argument("what", choices=["up", "status", "down", "keep"])
    parser.add_argument("--folder", type=Path, default=cache_folder(os.environ) / "playground", help="where it lies")
    arguments = parser.parse_args()
    actions = {"up": up, "status": status, "down": down, "keep": keep}
    try:
        return actions[arguments.what](arguments.folder)
    except HarnessError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
