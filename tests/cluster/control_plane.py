"""Starts the control plane, waits until it serves, and stops it by process id, whatever happened meanwhile.

    with start_control_plane(folder, tools) as control_plane:
        control_plane.kubectl("get", "nodes")

About five seconds.  Everything listens on loopback, at free ports; with an `address` the API server listens there, for
kubelets.  Data, certificates and logs lie in the folder.  The data is gone afterwards, the rest stays.  Its processes
also die with this one.
"""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoscaler.clusters.kubernetes.objects.fields import condition_of
from tests.cluster import command_lines
from tests.cluster.accounts import write_certificate_kubeconfig
from tests.cluster.command_lines import HOST, Layout, Ports
from tests.cluster.toolbox import Tools
from tests.harness.certificates import ClusterAuthority, make_signing_key
from tests.harness.commands import run
from tests.harness.errors import HarnessError, WaitTimeoutError
from tests.harness.free_ports import free_ports
from tests.harness.processes import Program
from tests.harness.waiting import BUDGET_S, wait_for

READY_BUDGET_S: Final = BUDGET_S
STOP_BUDGET_S: Final = 3.0  # of each program
COMMAND_BUDGET_S: Final = BUDGET_S
DELETE_BUDGET_S: Final = 20.0  # of a definition, before its clean-up is started again
DELETE_ATTEMPTS: Final = 9
API_SERVER: Final = "kube-apiserver"
ADMINISTRATORS: Final = "system:masters"
IDENTITIES: Final = {
    "admin": ("admin", (ADMINISTRATORS,)),
    "controllers": ("system:kube-controller-manager", ()),
    "scheduler": ("system:kube-scheduler", ()),
}
_Stage = tuple[str, Callable[[Layout], list[str]], str, ssl.SSLContext | None]
"""Name, command, where to ask whether it is ready, and how."""

SERVER_NAMES: Final = (
    HOST,
    "localhost",
    command_lines.FIRST_SERVICE,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """One that runs."""

    layout: Layout
    signer: ClusterAuthority
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.layout.folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.layout.kubeconfigs["admin"]

    @property
    def authority(self) -> Path:
        """The certificate that its clients trust."""
        return self.layout.authority

    def kubectl(
        self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None, budget_s: float = COMMAND_BUDGET_S
    ) -> str:
        """Standard output; as the administrator unless `kubeconfig` names another user.  Raises HarnessError."""
        return self._run("kubectl", arguments, stdin, kubeconfig, budget_s)

    def read(self, path: str) -> dict[str, Any]:
        """What the API server answers at this path, to the administrator: as `kubectl get --raw`, for who polls.

        kubectl takes fifty times the CPU time, most of it to start.  Raises HarnessError.
        """
        try:
            with urllib.request.urlopen(
                self.layout.server + path, context=_trusting_context(self.layout), timeout=COMMAND_BUDGET_S
            ) as answer:
                found: dict[str, Any] = json.load(answer)
        except OSError as error:
            raise HarnessError(f"GET {path}: {error}") from error
        return found

    def read_job(self, name: str, namespace: str) -> dict[str, Any]:
        """The TrainingJob.  Raises HarnessError."""
        return self.read(f"/apis/edl.dev/v1alpha1/namespaces/{namespace}/trainingjobs/{name}")

    def event_reasons(self, namespace: str) -> list[str]:
        """Of all events of the namespace.  Raises HarnessError."""
        return [
            event["reason"] for event in self.read(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        ]

    def wait_condition(self, condition: str, *what: str, budget_s: float = BUDGET_S) -> None:
        """Until it is True of every object that `kubectl get` answers for these words, of one at least.

        An object that is not there yet, or has no status yet, is waited for; `kubectl wait` ends with an error on a
        definition whose conditions are null, as the API server first writes them.  Raises WaitTimeoutError.
        """
        said = f"{condition} of {' '.join(what)}"
        wait_for(said, lambda: self._is_true_of_all(condition, what), budget_s=budget_s)

    def wait_served(self, definition: str) -> None:
        """Until objects of the definition PLURAL.GROUP are answered for.

        The API server says that it is Established before all of it knows so: a kind that was asked for at once was
        not found.  Raises WaitTimeoutError.
        """
        self.wait_condition("Established", f"crd/{definition}")
        wait_for(f"{definition} served", lambda: self._is_answered("get", definition, "--all-namespaces"))

    def delete_definition(self, definition: str) -> None:
        """The definition PLURAL.GROUP and its objects are gone.  No error if it was not there.

        The API server's clean-up of a definition can fail, at a watch cache that is not ready yet for one, and is then
        tried again after a pause that grows to minutes; a write to the definition starts it at once.  Raises
        WaitTimeoutError.
        """
        self.kubectl("delete", "crd", definition, "--ignore-not-found", "--wait=false")
        for attempt in range(DELETE_ATTEMPTS):
            if self._is_gone_in_time(definition):
                return
            with suppress(HarnessError):  # it may be gone by now
                self.kubectl("annotate", "crd", definition, f"edl.dev/cleanup={attempt}", "--overwrite")
        raise WaitTimeoutError(f"{definition}: still there\n{self.kubectl('get', 'crd', definition, '-o', 'yaml')}")

    def _is_gone_in_time(self, definition: str) -> bool:
        question = ("get", "crd", definition, "--ignore-not-found", "-o", "name")
        with suppress(WaitTimeoutError):
            return wait_for(f"{definition} gone", lambda: not self.kubectl(*question), budget_s=DELETE_BUDGET_S)
        return False

    def _is_answered(self, *arguments: str) -> bool:
        try:
            self.kubectl(*arguments)
        except HarnessError:
            return False
        return True

    def _is_true_of_all(self, condition: str, what: Sequence[str]) -> bool:
        found = json.loads(self.kubectl("get", *what, "--ignore-not-found", "-o", "json") or "{}")
        objects = found.get("items", [found])
        return bool(objects) and all(condition_of(one, condition).get("status") == "True" for one in objects)

    def helm(self, *arguments: str, budget_s: float = COMMAND_BUDGET_S) -> str:
        """Standard output, as the administrator.  Raises HarnessError."""
        return self._run("helm", arguments, "", None, budget_s)

    def kill_api_server(self) -> None:
        """SIGKILL: every connection and watch breaks, new ones are refused.  What it knew is in etcd."""
        self.programs[API_SERVER].kill()

    def start_api_server(self) -> None:
        """It serves again, at the same port with the same data.  Raises StartError."""
        program = self.programs[API_SERVER]
        program.restart()
        program.wait_ready(f"{self.layout.server}/readyz", _trusting_context(self.layout), READY_BUDGET_S)

    def log_tail(self) -> str:
        """The end of every log."""
        return "\n\n".join(program.log_tail() for program in self.programs.values())

    def kubectl_command(self, *arguments: str) -> list[str]:
        """For a caller who starts it: to follow a log."""
        return self._command("kubectl", arguments, None)

    def _command(self, program: str, arguments: Sequence[str], kubeconfig: Path | None) -> list[str]:
        return [str(self.layout.tools[program]), "--kubeconfig", str(kubeconfig or self.kubeconfig), *arguments]

    def _run(self, program: str, arguments: Sequence[str], stdin: str, kubeconfig: Path | None, budget_s: float) -> str:
        command, shown = self._command(program, arguments, kubeconfig), (program, *arguments)
        return run(command, stdin=stdin, shown=shown, budget_s=budget_s, cwd=self.folder)


@contextmanager
def start_control_plane(
    folder: Path, tools: Tools, *, address: str = HOST, more_flags: Mapping[str, Sequence[str]] | None = None
) -> Iterator[ControlPlane]:
    """One that is ready, and gone again afterwards.  From the main thread; `more_flags` by the program's name.

    Raises StartError with the end of the log of what did not start.
    """
    control_plane = _prepare(folder, tools, address)
    try:
        _start(control_plane, more_flags or {})
        yield control_plane
    finally:
        _stop(control_plane)


def _prepare(folder: Path, tools: Tools, address: str) -> ControlPlane:
    """Ports, certificates and kubeconfigs."""
    folder.mkdir(parents=True, exist_ok=True)
    first, second = free_ports(2)
    ports = Ports(
        etcd=first.client,
        etcd_peer=first.peer,
        api=first.health,
        controllers=second.client,
        scheduler=second.peer,
        kwok=second.health,
    )
    authority = ClusterAuthority(folder / "certificates")
    etcd_authority = ClusterAuthority(folder / "etcd-certificates")
    layout = Layout(
        folder=folder,
        tools=tools,
        ports=ports,
        authority=authority.certificate,
        serving=authority.issue("api-server", API_SERVER, addresses=(*SERVER_NAMES, address)),
        etcd_authority=etcd_authority.certificate,
        etcd=etcd_authority.issue("etcd", "etcd", addresses=(HOST,)),
        accounts=make_signing_key(folder / "certificates"),
        kubeconfigs={name: folder / f"{name}.kubeconfig" for name in IDENTITIES},
        address=address,
        kubelet_client=None
        if address == HOST
        else authority.issue("kubelet-client", "admin", groups=(ADMINISTRATORS,)),
    )
    for name, path in layout.kubeconfigs.items():
        user, groups = IDENTITIES[name]
        pair = authority.issue(name, user, groups=groups)
        write_certificate_kubeconfig(path, server=layout.server, authority=authority.certificate, pair=pair)
    return ControlPlane(layout=layout, signer=authority)


def _start(control_plane: ControlPlane, more_flags: Mapping[str, Sequence[str]]) -> None:
    """Each as soon as what it needs is ready: etcd, the API server, then the others together."""
    layout, ports = control_plane.layout, control_plane.layout.ports
    trusting = _trusting_context(layout)
    controllers, scheduler = f"https://{HOST}:{ports.controllers}/healthz", f"https://{HOST}:{ports.scheduler}/healthz"
    stages: Sequence[Sequence[_Stage]] = (
        (("etcd", command_lines.etcd_command, f"https://{HOST}:{ports.etcd}/readyz", _etcd_context(layout)),),
        ((API_SERVER, command_lines.api_server_command, f"{layout.server}/readyz", trusting),),
        (
            ("kube-controller-manager", command_lines.controllers_command, controllers, _credulous_context()),
            ("kube-scheduler", command_lines.scheduler_command, scheduler, _credulous_context()),
            ("kwok", command_lines.kwok_command, f"http://{HOST}:{ports.kwok}/healthz", None),
        ),
    )
    for stage in stages:
        for name, command, _, _ in stage:
            control_plane.programs[name] = Program(name, [*command(layout), *more_flags.get(name, ())], layout.folder)
        for name, _, url, context in stage:
            control_plane.programs[name].wait_ready(url, context, READY_BUDGET_S)


def _stop(control_plane: ControlPlane) -> None:
    """The last started goes first, so that each still has what it needs to leave: 0.4 s in all.

    One that does not go within its budget is killed: nothing here is worth keeping but the logs.
    """
    for program in reversed(control_plane.programs.values()):
        program.stop(STOP_BUDGET_S)
    shutil.rmtree(command_lines.data_folder(control_plane.layout), ignore_errors=True)  # 130 MB a run


def _trusting_context(layout: Layout) -> ssl.SSLContext:
    """Readiness of the API server, which only the administrator may read."""
    certificates = layout.authority.parent
    context = ssl.create_default_context(cafile=layout.authority)
    context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
    return context


def _etcd_context(layout: Layout) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=layout.etcd_authority)
    context.load_cert_chain(layout.etcd.certificate, layout.etcd.key)
    return context


def _credulous_context() -> ssl.SSLContext:
    """For those that sign their own certificate, and are asked for nothing but their health."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
