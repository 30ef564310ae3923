"""`edl agent`: what each GPU of this node does, and for which pod."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.cli.arguments.options import json_option
from autoscaler.cli.arguments.parameter_types import Duration, HostPort
from autoscaler.cli.exit_codes import CommandError, Exit
from master.api.host.log_lines import escape_controls

if TYPE_CHECKING:
    from autoscaler.gpus.agent.node_agent import NodeAgent
    from autoscaler.gpus.agent.node_reports import NodeReports

_WINDOW_S: Final = 300.0
_ONCE_WINDOW_S: Final = 10.0
_MOST_WATTS: Final = 2000.0
LEAST_DCGM_WINDOW_S: Final = 120.0


@click.command()
@click.option("--once", "is_once", is_flag=True, help="Watch for one window, print a table and end.")
@json_option("with --once, and the evidence of each verdict")
@click.option(
    "--window",
    "window_s",
    type=Duration(),
    default=None,
    help="How long nobody must have computed (default: 5m; with --once 10s).",
)
@click.option(
    "--interval", "interval_s", type=Duration(), default="5s", show_default=True, help="Between samples; 5s to 15s."
)
@click.option(
    "--listen",
    type=HostPort(),
    default="0.0.0.0:9410",
    show_default=True,
    help="Address that serves /metrics and /healthz.",
)
@click.option(
    "--kubelet-socket",
    type=click.Path(path_type=Path),
    default="/var/lib/kubelet/pod-resources/kubelet.sock",
    show_default=True,
    help="The kubelet's pod-resources socket.",
)
@click.option("--no-kubelet", "is_alone", is_flag=True, help="Outside Kubernetes: no pod has a GPU.")
@click.option("--proc", type=click.Path(path_type=Path), default="/proc", show_default=True, help="The host's /proc.")
@click.option(
    "--pod-logs",
    type=click.Path(path_type=Path),
    default="/var/log/pods",
    show_default=True,
    help="The kubelet's log folders, which name the pods of processes.",
)
@click.option(
    "--idle-watts",
    "idle_watts",
    multiple=True,
    metavar="MODEL=WATTS",
    help="What a model draws with a context and no work, for models that EDL does not know; several times.",
)
@click.option(
    "--dcgm-url", default="", metavar="URL", help="Page of a DCGM exporter on this node, read instead of the driver."
)
@click.option("--report", "is_reporting", is_flag=True, help="Write what changes to the node's NodeGpus object.")
@click.option(
    "--api-server",
    type=HostPort(),
    default=None,
    metavar="HOST:PORT",
    help="With --report: the API server (default: the pod's).",
)
@click.option(
    "--service-account",
    type=click.Path(path_type=Path),
    default="/var/run/secrets/kubernetes.io/serviceaccount",
    show_default=True,
    help="With --report: folder with token and ca.crt.",
)
@click.option(
    "--node", envvar="EDL_NODE", default="", help="With --report: the node's name, where the token does not tell it."
)
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO", show_default=True
)
def agent(**options: Any) -> None:
    """Watch the GPUs of this node: which compute, which are only held, which are free.

    A GPU is held or free only if two sources of the driver said for a whole window that nobody computed.  The agent
    changes nothing but, with --report, the object of its own node; it needs the host's PID namespace to name the pods
    of processes.

    \b
    edl agent --once --no-kubelet
    edl agent --once -o json
    edl agent --idle-watts L4=36
    edl agent --report
    """  # noqa: D301 - click keeps the lines after this mark as they are
    _check_options(options)
    if options["is_once"]:
        _watch_once(_make_agent(options), options)
    else:
        _serve(options)


def _check_options(options: dict[str, Any]) -> None:
    from autoscaler.gpus.agent.node_agent import LEAST_INTERVAL_S, MOST_INTERVAL_S  # noqa: PLC0415 - not for --help

    if options["window_s"] is None:
        options["window_s"] = _ONCE_WINDOW_S if options["is_once"] else _WINDOW_S
    if options["interval_s"] < LEAST_INTERVAL_S:
        raise CommandError(Exit.USAGE, f"--interval is below {LEAST_INTERVAL_S:g}s, which costs the GPUs too much")
    if options["interval_s"] > MOST_INTERVAL_S:
        raise CommandError(
            Exit.USAGE,
            f"--interval is above {MOST_INTERVAL_S:g}s: the driver may have forgotten what processes did so long ago",
        )
    if options["window_s"] < options["interval_s"]:
        raise CommandError(Exit.USAGE, "--window is shorter than --interval: no sample would lie in it")
    if options["dcgm_url"] and options["window_s"] < LEAST_DCGM_WINDOW_S:
        raise CommandError(
            Exit.USAGE, f"--window is below {LEAST_DCGM_WINDOW_S:g}s: an exporter has two figures a minute"
        )
    if options["dcgm_url"] and not options["dcgm_url"].startswith(("http://", "https://")):
        raise CommandError(Exit.USAGE, f"--dcgm-url {options['dcgm_url']}: write http://HOST:PORT/metrics")
    if options["is_json"] and not options["is_once"]:
        raise CommandError(Exit.USAGE, "-o json belongs to --once")
    if options["is_reporting"] and options["is_once"]:
        raise CommandError(Exit.USAGE, "--report and --once exclude one another: a report needs the whole window")


def _make_agent(options: dict[str, Any]) -> NodeAgent:
    from autoscaler.gpus.agent.node_agent import GAPS, NodeAgent  # noqa: PLC0415 - not for --help
    from autoscaler.gpus.driver.dcgm_door import STANDS_STILL_S, DcgmDoor  # noqa: PLC0415 - with it
    from autoscaler.gpus.driver.nvml_door import NvmlDoor  # noqa: PLC0415 - with it
    from autoscaler.gpus.idle_power import IDLE_WATTS  # noqa: PLC0415 - with it
    from autoscaler.gpus.pods.node_owners import NodeOwners  # noqa: PLC0415 - with it
    from autoscaler.gpus.pods.pod_resources import PodResources  # noqa: PLC0415 - with it
    from autoscaler.gpus.pods.process_pods import ProcessPods  # noqa: PLC0415 - with it
    from autoscaler.gpus.verdicts import VerdictRule  # noqa: PLC0415 - with it

    rule = VerdictRule(
        window_s=options["window_s"],
        longest_gap_s=STANDS_STILL_S if options["dcgm_url"] else GAPS * options["interval_s"],
        lines={**IDLE_WATTS, **_parse_idle_watts(options["idle_watts"])},
    )
    kubelet = None if options["is_alone"] else PodResources(options["kubelet_socket"])
    owners = NodeOwners(kubelet, ProcessPods(options["proc"], options["pod_logs"]))
    return NodeAgent(DcgmDoor(options["dcgm_url"]) if options["dcgm_url"] else NvmlDoor(), owners, rule)


def _parse_idle_watts(lines: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for line in lines:
        model, _, watts = line.rpartition("=")
        try:
            found[model] = float(watts)
        except ValueError:
            found[model] = 0.0
        if not model or not 0.0 < found[model] <= _MOST_WATTS:
            raise CommandError(Exit.USAGE, f"--idle-watts {line}: write MODEL=WATTS, as in L4=36")
    return found


def _watch_once(node: NodeAgent, options: dict[str, Any]) -> None:
    """Sample for a window and print the verdicts of the last sample."""
    from autoscaler.cli.output.gpu_report import gpu_content, gpu_lines  # noqa: PLC0415 - not for --help

    sample = node.sample()
    until_s = time.monotonic() + options["window_s"]
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(options["interval_s"], left_s))
        sample = node.sample()
    text = json.dumps(gpu_content(sample), indent=2) if options["is_json"] else "\n".join(gpu_lines(sample))
    print(escape_controls(text))
    if sample.failure is not None:
        raise CommandError(Exit.FAILED, sample.failure.message)


def _make_reports(options: dict[str, Any]) -> NodeReports:
    from autoscaler.gpus.agent.node_gpus_api import NodeGpusApi, host_port, server_of_environment  # noqa: PLC0415 - with it
    from autoscaler.gpus.agent.node_reports import NodeReports  # noqa: PLC0415 - not for --help

    server = server_of_environment() if options["api_server"] is None else host_port(*options["api_server"])
    door = NodeGpusApi(server, account=options["service_account"])
    return NodeReports(door, door.identity(options["node"]))


def _serve(options: dict[str, Any]) -> None:
    import asyncio  # noqa: PLC0415 - not for --help
    import logging  # noqa: PLC0415 - with it

    from autoscaler.errors import AutoscalerError  # noqa: PLC0415 - with it
    from autoscaler.gpus.agent.agent_process import AgentProcess  # noqa: PLC0415 - with it
    from master.api.host.http_pages import listen_at  # noqa: PLC0415 - with it

    logging.basicConfig(level=options["log_level"], format="%(asctime)s %(levelname)s %(message)s", force=True)
    host, port = options["listen"]
    try:
        listening = listen_at(host, port)
    except OSError as error:
        raise CommandError(Exit.FAILED, f"--listen {host}:{port}: {error.strerror}") from None
    with listening:
        try:
            reports = _make_reports(options) if options["is_reporting"] else None
            process = AgentProcess(
                _make_agent(options), interval_s=options["interval_s"], listening=listening, reports=reports
            )
            asyncio.run(process.run())
        except AutoscalerError as error:
            raise CommandError(Exit.FAILED, str(error)) from None
