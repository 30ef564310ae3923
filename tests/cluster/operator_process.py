"""`edl operator` as a process, with the token of the chart's ServiceAccount: RBAC refuses it what it refuses a pod."""

from __future__ import annotations

import os
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness.processes import Program
from tests.harness.waiting import BUDGET_S, wait_for

ANSWER_BUDGET_S: Final = 60.0


class OperatorProcess:
    """A context: inside it the process lives.  `log` is what it writes; `more` are options of the command, `settings`
    further variables.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        kubeconfig: Path,
        *,
        lease: str,
        policy: str = "",
        more: tuple[str, ...] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.more = more
        self._settings = settings or {}
        self.log = folder / f"{name}.log"
        self._policy = folder / f"{name}.yaml"
        self._policy.write_text(policy or "reclaim: scheduler\n", encoding="utf-8")
        self._kubeconfig = kubeconfig
        self._lease = lease
        self._folder = folder
        self._program: Program | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Begin, or begin again."""
        command = [str(Path(sys.executable).with_name("edl")), "operator", "--lease", self._lease]
        command += ["--policy", str(self._policy), "--kubeconfig", str(self._kubeconfig)]
        command += ["--listen", "127.0.0.1:0", *self.more]
        environment = {
            **os.environ,
            "EDL_NAME": self.name,
            "EDL_IMAGE": "edl:test",
            "EDL_ELASTIC_SERVERS": "true",
            "EDL_ETCD_ENDPOINTS": "http://etcd.invalid:2379",
            **self._settings,
        }
        self._program = Program(self.name, command, self._folder, environment=environment)

    @property
    def program(self) -> Program:
        """The process that was started last."""
        assert self._program is not None
        return self._program

    def kill(self) -> None:
        """Kill the process, if it was started."""
        if self._program is not None:
            self._program.kill()

    def send(self, number: signal.Signals) -> None:
        """A signal to the process."""
        self.program.send(number)

    def wait(self) -> int:
        """Its exit code."""
        return self.program.wait(BUDGET_S)

    def cpu_s(self) -> float:
        """CPU time that it has used, in seconds."""
        fields = self._proc("stat").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> dict[str, float]:
        """Resident memory now (VmRSS) and at its largest (VmHWM), in 10^6 bytes."""
        lines = (line.split() for line in self._proc("status").splitlines())
        return {line[0].rstrip(":"): int(line[1]) * 1024 / 1e6 for line in lines if line[0] in {"VmRSS:", "VmHWM:"}}

    def get(self, path: str) -> tuple[int, str]:
        """An answer of its own server."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port()}{path}", timeout=ANSWER_BUDGET_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_leading(self) -> bool:
        """True if it reports that it holds the lease."""
        try:
            return "edl_operator_leading 1.0" in self.get("/metrics")[1]
        except OSError:
            return False

    def wait_leading(self) -> None:
        """Until it leads and has seen the cluster."""
        wait_for(f"{self.name} leads", lambda: self.is_leading() and self.get("/readyz")[0] == 200)

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self.program.pid}/{name}").read_text(encoding="utf-8")

    def _port(self) -> int:
        found = re.findall(r"listens on port (\d+)", self.log.read_text(encoding="utf-8"))
        if not found:
            raise ConnectionRefusedError(f"{self.name} does not listen yet")
        return int(found[-1])
