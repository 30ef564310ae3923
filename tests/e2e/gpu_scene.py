"""Two jobs and three pods of others on nodes with GPUs, and what EDL, the kubelets and the driver say of them.

The jobs train `tests/programs/ledger.py`, which counts in the model how often each record was trained.  Each of their
trainers takes a batch a second until `hurry`, and one after `hold_up` takes none any more.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from kubernetes import client
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.control_plane import ControlPlane
from tests.e2e.day import EXAMPLES, FOLDER, job_manifest
from tests.e2e.device_plugin import RESOURCE
from tests.e2e.gpu_node import GpuNode
from tests.e2e.images import CHECKOUT
from tests.e2e.product import NAMESPACE, SMALL
from tests.harness.waiting import wait_for

PROGRAM: Final = CHECKOUT / "tests/programs/ledger.py"
RECORDS: Final = 400
BATCH: Final = 8
EPOCHS: Final = 40  # at a batch a second and trainer they would take half an hour
READ_PAGE: Final = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9410/metrics').read().decode())"
STEP_BUDGET_S: Final = 420.0  # a busy machine, an agent that is asked twice a minute, and a notice


class GpuScene:
    """In one namespace.  `shared` is where this machine finds the jobs' volume."""

    def __init__(
        self,
        control_plane: ControlPlane,
        api: client.ApiClient,
        namespace: str,
        shared: Path,
        edl: Callable[..., str],
    ) -> None:
        self._control_plane = control_plane
        self._core: Any = client.CoreV1Api(api)
        self._namespace = namespace
        self._shared = shared
        self._edl = edl
        shutil.copy(PROGRAM, shared)
        (shared / "held").mkdir()
        self.kubectl("apply", "-f", str(EXAMPLES / "checkpoints.yaml"))

    def start_job(self, name: str, *, most: int, node: str) -> None:
        """A job of one to `most` trainers with a GPU each, on this node."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(self._job(name, most=most, node=node)))

    def hold_up(self, trainer: str) -> None:
        """It asks for no batch any more."""
        (self._shared / "held" / trainer).touch()

    def hurry(self) -> None:
        """All trainers train as fast as they can."""
        (self._shared / "hurry").touch()

    def trainers(self, job: str) -> dict[str, str]:
        """UIDs of its trainers that are ready and not told to leave, by name."""
        found = self._core.list_namespaced_pod(
            self._namespace, label_selector=f"edl.dev/job={job},edl.dev/role=trainer"
        )
        return {pod.metadata.name: pod.metadata.uid for pod in found.items if _is_at_work(pod)}

    def wait_trainers(self, job: str, count: int) -> list[str]:
        """Names of its trainers, once it has this many."""
        self.wait(f"{job} has {count} trainers", lambda: len(self.trainers(job)) == count)
        return sorted(self.trainers(job))

    def patch_job(self, name: str, **trainer: Any) -> None:
        """Change the definition of its trainers (merge patch)."""
        self.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps({"spec": {"trainer": trainer}}))

    def rows(self) -> list[dict[str, str]]:
        """`edl get gpus`: the cells of each line by their titles."""
        title, *lines = self._edl("get", "gpus", "-o", "wide").splitlines()
        return [_cells(title, line) for line in lines]

    def pod_verdicts(self, node: str) -> dict[str, str]:
        """What the node's agent tells Prometheus of each pod of the scene that has a device."""
        where = ("--namespace", NAMESPACE)
        chosen = ("-l", "app.kubernetes.io/component=agent", "--field-selector", f"spec.nodeName={node}", "-o", "name")
        (agent,) = self._control_plane.kubectl("get", "pods", *chosen, *where).split()
        page = self._control_plane.kubectl("exec", agent, *where, "--", "python", "-c", READ_PAGE)
        samples = [one for family in text_string_to_metric_families(page) for one in family.samples]
        found = [one.labels for one in samples if one.name == "edl_gpu_pod_verdict" and one.value]
        return {one["pod"]: one["verdict"] for one in found if one["namespace"] == self._namespace}

    def top(self) -> dict[str, dict[str, str]]:
        """`edl top`: for each job and pod the cells by their titles."""
        title, *lines = self._edl("top").splitlines()
        found = [_cells(title, line) for line in lines]
        return {row["NAME"]: row for row in found}

    def container_of(self, pod: str) -> str:
        """The name that containerd has for its container."""
        where = "jsonpath={.status.containerStatuses[0].containerID}"
        return self.kubectl("get", "pod", pod, "-o", where).removeprefix("containerd://")

    def why(self, job: str) -> str:
        """`edl why`."""
        return self._edl("why", f"tj/{job}")

    def wait_row(self, node: str, gpu: str, **cells: str) -> None:
        """Wait until a line of `edl get gpus` has these cells for the GPU; pod and job are of the scene's namespace."""
        named = {title.upper(): f"{self._namespace}/{cell}" for title, cell in cells.items() if title != "verdict"}
        verdict = {"VERDICT": cells["verdict"]} if "verdict" in cells else {}
        wanted = {"NODE": node, "GPU": gpu, **verdict, **named}
        self.wait(f"told: {wanted}", lambda: any(wanted.items() <= row.items() for row in self.rows()))

    def events(self, name: str) -> dict[str, str]:
        """Messages of the events of this pod or job by their reasons."""
        told = json.loads(self.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
        return {one["reason"]: one["note"] for one in told if one["regarding"]["name"] == name}

    def end(self, job: str) -> None:
        """Wait until the job is completed; every record was trained exactly once an epoch."""
        self._control_plane.wait_condition(
            "Completed", f"tj/{job}", "--namespace", self._namespace, budget_s=STEP_BUDGET_S
        )
        with np.load(self._shared / f"{job}.npz") as arrays:
            assert arrays["counts"].tolist() == [EPOCHS] * RECORDS

    def wait(self, what: str, probe: Callable[[], object]) -> None:
        """As wait_for, with a budget for a step of the scene."""
        wait_for(what, probe, budget_s=STEP_BUDGET_S)

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """In the scene's namespace.  Raises HarnessError."""
        return self._control_plane.kubectl(*words, "--namespace", self._namespace, stdin=stdin)

    def _job(self, name: str, *, most: int, node: str) -> dict[str, Any]:
        job = job_manifest(epochs=EPOCHS, most=most, least=1, most_servers=1)
        job["metadata"]["name"] = name
        spec = job["spec"]
        spec["checkpoint"] |= {"uri": f"file://{FOLDER}/{name}", "everySeconds": 15}
        template = spec["trainer"]["template"]["spec"]
        template["nodeSelector"] = {"kubernetes.io/hostname": node}
        (trainer,) = template["containers"]
        trainer["resources"] = {"requests": {"cpu": SMALL, "memory": "96Mi"}, "limits": {RESOURCE: "1"}}
        trainer["command"] = ["python", f"{FOLDER}/{PROGRAM.name}"]
        amounts = {"--size": RECORDS, "--epochs": EPOCHS, "--batch-size": BATCH, "--pause-s": 1}
        places = {"--pause-until": "hurry", "--evaluate-while": "held", "--out": f"{name}.npz"}
        words = {**amounts, **{option: f"{FOLDER}/{place}" for option, place in places.items()}}
        trainer["args"] = [str(word) for pair in words.items() for word in pair]
        return job


def who_has(told: Any, gpus: GpuNode) -> Mapping[str, str]:
    """Names of the pods that have the node's devices, by device; `told` is what its kubelet tells."""
    return {one.identifier: one.pod.name for one in told if one.identifier in gpus.devices}


def _is_at_work(pod: Any) -> bool:
    is_ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())
    return is_ready and pod.metadata.deletion_timestamp is None


def _cells(title: str, line: str) -> dict[str, str]:
    """Cells of a line by the places of their titles, which are padded alike."""
    starts = [match.start() for match in re.finditer(r"\S+", title)]
    ends = [*starts[1:], max(len(line), len(title))]
    return {title[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}
