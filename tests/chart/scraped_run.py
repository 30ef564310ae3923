"""A real Prometheus that scrapes a real run: `edl run` with jobs of every kind, its masters, and `edl agent`.

The rules of the chart are loaded; what they record a minute apart is recorded a second apart.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.exported import FILES
from tests.cluster.families import ALERT_FAMILIES
from tests.cluster.toolbox import find_tools
from tests.harness import fake_nvml
from tests.harness.edl_command import EDL, PROGRAMS, EdlRun
from tests.harness.fake_nvml import Device
from tests.harness.master_process import free_port
from tests.harness.processes import Program
from tests.harness.waiting import BUDGET_S

RULES: Final = ("alerts.yaml", "recording-rules.yaml")
POD_UID: Final = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
BUSY, HELD, FREE = (f"GPU-{number}1111111-2222-3333-4444-555555555555" for number in range(3))
JOB: Final = "rows"


def _pod(command: list[str], cpu: str = "500m") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    if command:
        container["command"] = command
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}


def _job(name: str, command: list[str], *, cpu: str = "500m", **more: Any) -> dict[str, Any]:
    spec = {"trainer": {"minReplicas": 1, "maxReplicas": 2, "template": _pod(command, cpu)}, **more}
    master = {"template": _pod([], "100m")}
    return {
        "apiVersion": "edl.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"master": master, **spec},
    }


def _documents() -> str:
    """One job trains with servers, one fails at every start, one fits nowhere; and a web service."""
    web = {"replicas": 1, "template": _pod(["sleep", "1000"])}
    servers = {"minReplicas": 1, "template": _pod([])}
    return yaml.safe_dump_all(
        [
            _job(JOB, ["python", str(PROGRAMS / "rows.py")], parameterServer=servers, checkpoint={"everySeconds": 1}),
            _job("broken", ["python", "-c", "raise SystemExit('no data')"], runPolicy={"backoffLimit": 50}),
            _job("large", ["sleep", "1000"], cpu="64"),
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": web},
        ]
    )


@dataclass(frozen=True)
class Prometheus:
    """The HTTP API of one that runs."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer.  Raises AssertionError with the error of a refused one."""
        names = {"match": "match[]"}
        query = urllib.parse.urlencode({names.get(name, name): value for name, value in parameters.items()})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from None

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        found: list[dict[str, Any]] = self.ask("query", query=expr)["result"]
        return found


def _start_agent(folder: Path) -> tuple[Program, int]:
    """`edl agent` over a driver of tests: one GPU works, one is held by a process of a pod, one is free."""
    scenario = fake_nvml.Scenario(folder / "scenario")
    scenario.devices = [
        Device(BUSY, name="Tesla_T4", util=80, watts=65, energy=-1, mem=1 << 30, gpm=70.0),
        Device(HELD, name="Tesla_T4", minor=1, watts=20, energy=-1, mem=1 << 30),
        Device(FREE, name="Tesla_T4", minor=2, watts=10, energy=-1),
    ]
    scenario.processes = [(HELD, 7, -1)]
    scenario.write()
    (folder / "proc" / "7").mkdir(parents=True)
    (folder / "proc" / "7" / "cgroup").write_text(f"0::/kubepods/pod{POD_UID}/9f\n")
    (folder / "pods" / f"research_notebook_{POD_UID}").mkdir(parents=True)
    library = fake_nvml.build(folder)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), fake_nvml.VARIABLE: str(scenario.path)}
    port = free_port()
    command = [EDL, "agent", "--window", "5s", "--listen", f"127.0.0.1:{port}", "--no-kubelet"]
    command += ["--proc", str(folder / "proc"), "--pod-logs", str(folder / "pods")]
    return Program("agent", command, folder, environment=environment), port


def _configure(folder: Path, *, run: int, agent: int) -> Path:
    """Write what the chart's monitors say, for processes of this machine."""
    for name in RULES:
        (folder / name).write_text((FILES / name).read_text().replace("interval: 1m", "interval: 1s"))
    operator = {"namespace": "edl-system", "pod": "edl-operator-0"}
    agent_pod = {"namespace": "edl-system", "pod": "edl-agent-0"}
    settings: Mapping[str, Any] = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": list(RULES),
        "scrape_configs": [
            {
                "job_name": "operator",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{run}"], "labels": operator}],
            },
            {
                "job_name": "agents",
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{agent}"], "labels": agent_pod}],
            },
            {
                "job_name": "masters",
                "http_sd_configs": [{"url": f"http://127.0.0.1:{run}/targets", "refresh_interval": "1s"}],
            },
        ],
    }
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


@contextmanager
def scraped_run(folder: Path) -> Iterator[Prometheus]:
    """Everything runs inside the context; nothing has to have been scraped yet."""
    program = find_tools(os.environ, ALERT_FAMILIES)["prometheus"]
    metrics, page = free_port(), free_port()
    agent, agent_port = _start_agent(folder)
    run = None
    prometheus = None
    try:
        run = EdlRun(folder, "--stay", "--metrics", f"127.0.0.1:{metrics}", files=_documents())
        config = _configure(folder, run=metrics, agent=agent_port)
        command = [str(program), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{page}", "--log.level=warn"]
        prometheus = Program("prometheus", command, folder)
        url = f"http://127.0.0.1:{page}"
        prometheus.wait_ready(f"{url}/-/ready", None, BUDGET_S)
        yield Prometheus(url)
    finally:
        if prometheus is not None:
            prometheus.kill()
        if run is not None:
            run.end()
        agent.kill()
