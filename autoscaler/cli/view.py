"""The live picture of a run: a pure function from a snapshot to something that rich can draw.

Nodes with what occupies them, jobs with their sizes and progress, the newest decisions with their reasons.  `running`
shows it four times a second; the demo feeds it the same snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autoscaler.clusters.local.recorder import RunEvent
from autoscaler.clusters.local.snapshot import DecisionLine, DeploymentLine, JobLine, NodeLine, PodLine, RunSnapshot
from autoscaler.domain import PodPhase, Role
from autoscaler.quantities import format_cpu

_BAR_CELLS_PER_CORE: Final = 4
_WIDEST_BAR: Final = 48
_DECISIONS: Final = 5
_EVENTS: Final = 4
_JOB_COLOURS: Final = ("cyan", "magenta", "yellow", "blue", "bright_red", "bright_cyan")
_WEB_COLOUR: Final = "green"
_FILL: Final[Mapping[Role, str]] = {Role.TRAINER: "█", Role.SERVER: "▓", Role.MASTER: "▒", Role.OTHER: "█"}


def draw(snapshot: RunSnapshot, events: Sequence[RunEvent] = ()) -> RenderableType:
    """The whole picture."""
    colours = {job.name: _JOB_COLOURS[i % len(_JOB_COLOURS)] for i, job in enumerate(snapshot.jobs)}
    parts: list[RenderableType] = [_title(snapshot), _nodes(snapshot.nodes, colours)]
    if snapshot.jobs:
        parts.append(_jobs(snapshot.jobs, colours))
    if snapshot.deployments:
        parts.append(_deployments(snapshot.deployments))
    if snapshot.decisions:
        parts.append(_decisions(snapshot.decisions[-_DECISIONS:], colours))
    if events:
        parts.append(_events(events[-_EVENTS:]))
    return Group(*parts)


def _title(snapshot: RunSnapshot) -> Text:
    minutes, seconds = divmod(int(snapshot.t_s), 60)
    return Text.assemble(("EDL ", "bold"), f"{snapshot.name}   {minutes}:{seconds:02}", ("   Ctrl-C stops it", "dim"))


def _nodes(nodes: Sequence[NodeLine], colours: Mapping[str, str]) -> Table:
    table = Table(box=None, padding=(0, 1), expand=False)
    table.add_column("node", no_wrap=True)
    table.add_column(Text.assemble("cpu   ", ("█ web  ", _WEB_COLOUR), "█ trainer  ▓ server  ▒ master  ░ leaving"))
    table.add_column("used", justify="right", no_wrap=True)
    for node in nodes:
        used = sum(pod.requests.cpu_milli for pod in node.pods)
        name = Text(node.name) if node.is_open else Text(f"{node.name} (draining)", style="red")
        table.add_row(name, _bar(node, colours), f"{format_cpu(used)}/{format_cpu(node.capacity.cpu_milli)}")
    return table


def _bar(node: NodeLine, colours: Mapping[str, str]) -> Text:
    cores = max(1, node.capacity.cpu_milli) / 1000
    width = max(1, min(_WIDEST_BAR, round(cores * _BAR_CELLS_PER_CORE)))
    bar = Text()
    drawn = 0
    reached_milli = 0
    for pod in sorted(node.pods, key=_order):
        reached_milli += pod.requests.cpu_milli
        end = min(width, round(width * reached_milli / max(1, node.capacity.cpu_milli)))
        fill = "░" if pod.phase is PodPhase.TERMINATING else _FILL[pod.role]
        style = _WEB_COLOUR if pod.role is Role.OTHER else colours.get(pod.owner, "white")
        bar.append(fill * (end - drawn), style=style if pod.phase is PodPhase.READY else f"{style} dim")
        drawn = end
    bar.append("·" * (width - drawn), style="dim")
    return bar


def _order(pod: PodLine) -> tuple[int, str, int]:
    return ([Role.OTHER, Role.MASTER, Role.SERVER, Role.TRAINER].index(pod.role), pod.owner, pod.ordinal)


def _jobs(jobs: Sequence[JobLine], colours: Mapping[str, str]) -> Table:
    table = Table(box=None, padding=(0, 1), expand=False)
    for title in ("job", "phase"):
        table.add_column(title, no_wrap=True)
    for title in ("min", "now", "target", "max", "servers", "epoch", "done", "committed", "samples/s", "loss"):
        table.add_column(title, justify="right", no_wrap=True)
    for job in jobs:
        phase = Text(job.condition, style={"Completed": "bold green", "Failed": "bold red"}.get(job.condition, ""))
        now = Text(str(job.now), style="" if job.now == job.target else "bold yellow")
        sizes = (str(job.min), now, str(job.target), str(job.max), f"{job.servers}/{job.servers_wanted}")
        table.add_row(Text(job.name, style=colours.get(job.name, "")), phase, *sizes, *_progress(job))
    return table


def _progress(job: JobLine) -> tuple[str, ...]:
    progress = job.progress
    if progress is None or not progress.total:
        return ("-",) * 5
    loss = "-" if progress.loss is None else f"{progress.loss:.4f}"
    return (
        f"{progress.epoch}/{progress.epochs}",
        f"{progress.done / progress.total:.0%}",
        f"{progress.committed / progress.total:.0%}",
        f"{progress.samples_per_s:,.0f}",
        loss,
    )


def _deployments(deployments: Sequence[DeploymentLine]) -> Text:
    text = Text()
    for deployment in deployments:
        text.append(f" {deployment.name} ", style=f"bold {_WEB_COLOUR}")
        text.append(f"{deployment.ready}/{deployment.wanted} ready")
        if deployment.pending:
            text.append(f", {deployment.pending} wait for room", style="bold yellow")
        text.append("   ")
    return text


def _decisions(decisions: Sequence[DecisionLine], colours: Mapping[str, str]) -> Panel:
    table = Table.grid(padding=(0, 1))
    for line in decisions:
        decision = line.decision
        sizes = str(decision.now) if decision.now == decision.target else f"{decision.now} → {decision.target}"
        name = Text(decision.job, style=colours.get(decision.job, ""))
        table.add_row(
            f"{line.t_s:6.1f}s", name, sizes, str(decision.reason), Text(decision.message, overflow="ellipsis")
        )
    return Panel(table, title="decisions", title_align="left", border_style="dim")


def _events(events: Sequence[RunEvent]) -> Panel:
    table = Table.grid(padding=(0, 1))
    for event in events:
        first = event.message.splitlines()[0] if event.message else ""
        table.add_row(f"{event.t_s:6.1f}s", event.object, event.reason, Text(first, overflow="ellipsis"))
    return Panel(table, title="events", title_align="left", border_style="dim")
