"""Real pods in tests: create, wait, read logs, run commands."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.cluster.control_plane import ControlPlane
from tests.e2e.images import NAMES
from tests.harness.waiting import wait_for

START_BUDGET_S: Final = 300.0
LOG_LINES: Final = 20
NAME: Final = "main"  # of the one container


def make_pod(
    name: str,
    image: str,
    command: Sequence[str] = (),
    *,
    container: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """`image` is a key of NAMES; `container` and `spec` add to what is said of either."""
    main = {
        "name": NAME,
        "image": NAMES[image],
        "imagePullPolicy": "Never",
        **({"command": list(command)} if command else {}),
    }
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"restartPolicy": "Never", "containers": [{**main, **(container or {})}], **spec},
    }


class Follower:
    """Reads a log until it ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115  it lives as long as the process, which appends
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log)

    def said(self) -> str:
        """What it has read so far."""
        self._log.seek(0)
        return self._log.read().decode()

    def wait_end(self, *, budget_s: float = START_BUDGET_S) -> str:
        try:
            self._process.wait(budget_s)
            return self.said()
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()


class Pods:
    """Pods of one namespace."""

    def __init__(self, control_plane: ControlPlane, core: client.CoreV1Api, namespace: str) -> None:
        self._control_plane = control_plane
        self._core: Any = core
        self._namespace = namespace

    def create(self, pod: Mapping[str, Any]) -> str:
        """Its name."""
        return str(self._core.create_namespaced_pod(self._namespace, pod).metadata.name)

    def run(self, pod: Mapping[str, Any], *, budget_s: float = START_BUDGET_S) -> str:
        """Its name, once it is Ready."""
        name = self.create(pod)
        wait_for(f"{name} is Ready", lambda: self.is_ready(name), budget_s=budget_s)
        return name

    def finish(self, pod: Mapping[str, Any], *, budget_s: float = START_BUDGET_S) -> tuple[int, str]:
        """The exit code of its container, and its output."""
        name = self.create(pod)
        return self.wait_end(name, budget_s=budget_s), self.logs(name)

    def wait_end(self, name: str, *, budget_s: float = START_BUDGET_S) -> int:
        ended = wait_for(f"{name} ends", lambda: self.ended(name), budget_s=budget_s)
        return int(ended.exit_code)

    def ended(self, name: str) -> Any:
        """The end of its container, or None."""
        statuses = self.read(name).status.container_statuses or ()
        return next((status.state.terminated for status in statuses if status.state.terminated), None)

    def is_ready(self, name: str) -> bool:
        conditions = self.read(name).status.conditions or ()
        return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)

    def read(self, name: str) -> Any:
        return self._core.read_namespaced_pod(name, self._namespace)

    def logs(self, name: str) -> str:
        return str(self._core.read_namespaced_pod_log(name, self._namespace))

    def execute(self, name: str, *command: str) -> str:
        """Output of a command in the container.  Raises HarnessError when it fails."""
        return self._control_plane.kubectl("exec", "--namespace", self._namespace, name, "--", *command)

    def exists(self, name: str) -> bool:
        return any(pod.metadata.name == name for pod in self._core.list_namespaced_pod(self._namespace).items)

    def follow(self, name: str) -> Follower:
        """Its log from the start to the end, also when the pod goes meanwhile."""
        return Follower(self._control_plane.kubectl_command("logs", "--follow", "--namespace", self._namespace, name))

    def delete(self, name: str, *, grace_s: int | None = None) -> None:
        self._core.delete_namespaced_pod(name, self._namespace, grace_period_seconds=grace_s)

    def account(self) -> str:
        """State, events and logs of all pods, for the report of a failed test."""
        parts = [("get", "pods", "-o", "wide"), ("get", "events", "--sort-by=.lastTimestamp")]
        told = [self._control_plane.kubectl(*part, "--namespace", self._namespace) for part in parts]
        for pod in self._core.list_namespaced_pod(self._namespace).items:
            told.append(f"{pod.metadata.name} said last:")
            with contextlib.suppress(ApiException):  # it has not begun
                told.append(
                    self._core.read_namespaced_pod_log(pod.metadata.name, self._namespace, tail_lines=LOG_LINES)
                )
        return "\n".join(told)
