"""A day of examples/kubernetes on the real nodes: the digits job beside the web, and what a test does to both.

The files are applied as they are but for amounts, and for the web's image, which is nginx out of Debian's packages.
The trainers run the example's script through `tests/programs/paced.py`: a day lasts for as long as a test needs it,
some minutes at most, and what is left to train then takes seconds.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import yaml
from kubernetes import client

from tests.cluster.control_plane import ControlPlane
from tests.cluster.trainingjobs import GROUP
from tests.e2e.images import CHECKOUT, NAMES
from tests.e2e.product import SLOT, SMALL
from tests.harness.waiting import wait_for

EXAMPLES: Final = CHECKOUT / "examples/kubernetes"
FOLDER: Final = "/tmp/edl-checkpoints"
PACED: Final = CHECKOUT / "tests/programs/paced.py"
HURRY: Final = "hurry"
DIGITS: Final = 1437  # of examples/digits.npz, to train on
STEP_BUDGET_S: Final = 300.0
END_BUDGET_S: Final = 1500.0
MEMORY: Final = "96Mi"

Value = TypeVar("Value")


class Day:
    """The examples in one namespace.  `checkpoints` is where this machine finds the job's volume."""

    def __init__(self, control_plane: ControlPlane, api: client.ApiClient, namespace: str, checkpoints: Path) -> None:
        self.namespace = namespace
        self._control_plane = control_plane
        self._api: Any = api
        self._checkpoints = checkpoints
        self._epochs = 0
        self._began_s = time.monotonic()

    def begin(self, *, epochs: int, trainers: int, web: int, **edits: Any) -> None:
        """`start` the example's job.  `trainers`: its maximum; `edits`: see `job_manifest`."""
        self.start(job_manifest(epochs=epochs, most=trainers, **edits), epochs=epochs, web=web)

    def start(self, job: Mapping[str, Any], *, epochs: int, web: int) -> None:
        """Create web and job, and wait until it trains."""
        self._epochs = epochs
        shutil.copy(PACED, self._checkpoints)
        self.kubectl("apply", "-f", str(EXAMPLES / "checkpoints.yaml"))
        self.kubectl("apply", "-f", "-", stdin=json.dumps(_list_of(web_manifests())))
        self.scale_web(web)
        self.scale_web(web)
        self.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        self.wait("training has begun", lambda: self.trained() > 0)

    def scale_web(self, replicas: int) -> None:
        """Scale the web, and wait until that many pods answer."""
        self.kubectl("scale", "deployment/web", f"--replicas={replicas}")
        self.wait(f"{replicas} web pods are ready", lambda: self._ready_web() == replicas)

    def wait_trainers(self, count: int) -> None:
        """Wait until `count` trainers work, by the job's own status and by their pods."""
        self.wait(f"{count} trainers", lambda: self.status("trainers", "ready") == count == len(self.trainers()))

    def wait_servers(self, count: int) -> None:
        """Wait until `count` servers hold the model, by their pods, the job's status and its master."""
        self.wait(f"{count} servers", lambda: self.servers() == [count] * 3)

    def wait_told(self, cause: str, *, by: str, role: str = "trainer") -> None:
        """Wait until the job's status lists such a change of its size.  It keeps the last ten."""
        told = {"cause": cause, "by": by, "role": role}
        self.wait(
            f"told: {cause} by {by}",
            lambda: any(told.items() <= one.items() for one in self.status("resizes") or ()),
        )

    def wait_told_who_made_way(self) -> None:
        """Wait until status and events name who took trainers for the web, as kube-scheduler's events do.

        EDL gives room to a Deployment that is to grow, kube-scheduler to pods that are there: a matter of milliseconds.
        """

        def is_told() -> bool:
            changes = [one for one in self.status("resizes") or () if one["role"] == "trainer"]
            by = {one["by"] for one in changes if one["to"] < one["from"]}
            is_preempted = bool(self.preempted_trainers())
            is_news = "Preempted" in self.event_reasons()
            return bool(by) and by <= {"scheduler", "edl"} and ("scheduler" in by) == is_preempted == is_news

        self.wait("told who made way", is_told)

    def preempted_trainers(self) -> set[str]:
        """Trainers that kube-scheduler reports as preempted."""
        told = json.loads(self.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
        pods = {one["regarding"]["name"] for one in told if one["reason"] == "Preempted"}
        return {name for name in pods if name.startswith("digits-trainer-")}

    def servers(self) -> list[int]:
        """Servers at work: by their pods, by the status, and those with a wanted ordinal."""
        there = [name for name, pod in self.pods("server").items() if _is_at_work(pod)]
        ready, wanted = (int(self.status("servers", what) or 0) for what in ("ready", "wanted"))
        return [len(there), ready, sum(int(name.rpartition("-")[2]) < wanted for name in there)]

    def wait(self, what: str, probe: Callable[[], Value | None], *, budget_s: float = STEP_BUDGET_S) -> Value:
        """As wait_for; a job that has ended ends the wait too."""

        def look() -> Value | None:
            answer = probe()
            assert answer or not self.is_over(), f"{what}: the job has ended before: {self.status('conditions')}"
            return answer

        answer = wait_for(what, look, budget_s=budget_s)
        print(f"{time.monotonic() - self._began_s:6.1f} s, {self.trained()} samples: {what}")
        return answer

    def trainers(self) -> dict[str, Any]:
        """Those at work, by name."""
        return {name: pod for name, pod in self.pods("trainer").items() if _is_at_work(pod)}

    def pods(self, role: str) -> dict[str, Any]:
        """All of the job's, by name."""
        found = client.CoreV1Api(self._api).list_namespaced_pod(self.namespace, label_selector=f"edl.dev/role={role}")
        return {pod.metadata.name: pod for pod in found.items}

    def places(self) -> set[str]:
        """The nodes that have pods of the job."""
        pods = [pod for role in ("trainer", "server", "master") for pod in self.pods(role).values()]
        return {pod.spec.node_name for pod in pods if pod.status.phase in {"Pending", "Running"}}

    def trained(self) -> int:
        """Samples committed in all epochs."""
        return int(self.status("progress", "samplesCommitted") or 0)

    def is_over(self) -> bool:
        found = self.status("conditions") or ()
        return any(each["type"] in {"Completed", "Failed"} and each["status"] == "True" for each in found)

    def status(self, *path: str) -> Any:
        """A part of the job's status, or None."""
        found = self.job().get("status", {})
        for step in path:
            found = (found or {}).get(step)
        return found

    def is_told(self, condition: str, status: str, words: str) -> bool:
        """True if the job has the condition with this status, and this text in its message."""
        found = [one for one in self.status("conditions") or () if one["type"] == condition]
        return any(one["status"] == status and words in one.get("message", "") for one in found)

    def change(self, **spec: Any) -> None:
        """Patch the job's definition (merge patch)."""
        self.kubectl("patch", "tj", "digits", "--type=merge", "-p", json.dumps({"spec": spec}))

    def kept(self, pattern: str) -> list[Path]:
        """Files of the job's checkpoints whose path in the volume begins so, the newest name last."""
        return sorted(path for path in (self._checkpoints / "digits").glob(f"{pattern}*") if path.is_file())

    def event_reasons(self) -> set[str]:
        """Reasons of the job's events."""
        return {reason for reason, _ in self.events()}

    def wait_events(self, *reasons: str) -> None:
        """Wait until the job has events of all these reasons; an event follows its cause by a moment."""
        self.wait(f"told: {', '.join(reasons)}", lambda: set(reasons) <= self.event_reasons())

    def events(self) -> set[tuple[str, str]]:
        """The job's events: reason and message."""
        told = json.loads(self.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
        return {(each["reason"], each["note"]) for each in told if each["regarding"]["kind"] == "TrainingJob"}

    def job(self) -> dict[str, Any]:
        """Empty before there is one."""
        objects: Any = client.CustomObjectsApi(self._api)
        found = objects.list_namespaced_custom_object(namespace=self.namespace, **GROUP)["items"]
        return dict(found[0]) if found else {}

    def hurry(self) -> None:
        """The day is long enough: trainers train what is left as fast as they can."""
        (self._checkpoints / HURRY).touch()

    def end(self) -> None:
        """`hurry`, until the job is completed; then every digit was trained exactly once an epoch (promise A1)."""
        self.hurry()
        done = ("Completed", "tj/digits", "--namespace", self.namespace)
        self._control_plane.wait_condition(*done, budget_s=END_BUDGET_S)
        trained = _read_ledger(self._checkpoints / "model")
        wrong = {int(digit): int(trained[digit]) for digit in np.flatnonzero(trained != self._epochs)}
        assert (len(trained), wrong) == (DIGITS, {}), f"not {self._epochs} times each"

    def kubectl(self, *words: str, stdin: str = "", budget_s: float = STEP_BUDGET_S) -> str:
        """In the day's namespace.  Raises HarnessError."""
        return self._control_plane.kubectl(*words, "--namespace", self.namespace, stdin=stdin, budget_s=budget_s)

    def _ready_web(self) -> int:
        web = client.AppsV1Api(self._api).read_namespaced_deployment("web", self.namespace)
        return web.status.ready_replicas or 0


def _read_ledger(model: Path) -> npt.NDArray[np.int64]:
    """How often each digit was trained, as the job's script has counted it in the model."""
    if (ledger := model / "ledger.npy").exists():
        return np.asarray(np.load(ledger))
    with np.load(model / "model.npz") as arrays:
        return np.asarray(arrays["ledger"])


def job_manifest(
    *, epochs: int, most: int, least: int = 2, most_servers: int = 3, server: str = SMALL, copies: int = 1
) -> dict[str, Any]:
    """The example's job, with a slot's amounts; it counts in the model how often each digit was trained.

    `server`: what a server asks for; `copies`: of each part of the model.
    """
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / "digits.yaml").read_text())
    spec = job["spec"]
    spec["trainer"] |= {"minReplicas": least, "maxReplicas": most}
    spec["parameterServer"] |= {"maxReplicas": most_servers, "copies": copies}
    for role, cpu in (("trainer", SLOT), ("parameterServer", server), ("master", SMALL)):
        (container,) = spec[role]["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": cpu, "memory": MEMORY}}
    (trainer,) = spec["trainer"]["template"]["spec"]["containers"]
    trainer["resources"]["limits"] = {"cpu": SLOT}
    trainer["command"] = ["python", f"{FOLDER}/{PACED.name}", f"{FOLDER}/{HURRY}", *trainer["command"][1:]]
    trainer["args"] = ["--epochs", str(epochs), "--ledger", "--out", f"{FOLDER}/model"]
    spec["checkpoint"]["everySeconds"] = 5
    return job


def web_manifests() -> list[dict[str, Any]]:
    """The example's Deployment, Service and autoscaler, with a slot's amounts and the image that is here."""
    deployment, *others = yaml.safe_load_all((EXAMPLES / "web.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container |= {"image": NAMES["nginx"], "imagePullPolicy": "Never"}
    container["resources"]["requests"] = {"cpu": SLOT, "memory": "32Mi"}
    return [deployment, *others]


def _list_of(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": manifests}


def _is_at_work(pod: Any) -> bool:
    is_ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
    return is_ready and pod.metadata.deletion_timestamp is None
