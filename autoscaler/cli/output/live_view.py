"""Live view of a run: a pure function from a snapshot to a picture that rich can draw.

It shows nodes with their pods, jobs with sizes, progress and the reason for the size, decisions and events.  A narrow
terminal gets fewer columns, a low one fewer events.  `local.foreground` draws it four times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autoscaler.cli.output.throughput_plot import bars_of
from autoscaler.clusters.local.machine.pod_logs import LOG_HEADING
from autoscaler.clusters.local.run_files.run_journal import DECIDED, RunEvent
from autoscaler.domain import Bottleneck, PodPhase, Role
from autoscaler.local_run.run_snapshot import (
    DecisionLine,
    DeploymentLine,
    JobLine,
    NodeLine,
    PodLine,
    RunSnapshot,
    is_change,
)
from autoscaler.quantities import format_cpu
from autoscaler.views.phrases import format_count
from master.api.host.log_lines import escape_controls

_BAR_CELLS_PER_CORE: Final = 4
_WIDEST_BAR: Final = 48
_BESIDE_A_BAR: Final = 30
"""Columns for a node's name and numbers."""

_WIDE: Final = 80
_SHORTEST_NAME: Final = 8
_MOST_ROWS: Final = 5
_BESIDE_A_MESSAGE: Final = 15
"""Columns of an event for its frame, its time and the gaps."""

_SHORTEST_MESSAGE: Final = 20
_MOST_LINES: Final = 3  # of one failure
_JOB_COLOURS: Final = ("cyan", "magenta", "yellow", "blue", "bright_red", "bright_cyan")
_WEB_COLOUR: Final = "green"
_FILL: Final[Mapping[Role, str]] = {Role.TRAINER: "█", Role.SERVER: "▓", Role.MASTER: "▒", Role.EXTERNAL: "█"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumn:
    """A column of the jobs' table; shown if the terminal has `from_width` columns."""

    title: str
    cell: Callable[[JobLine], str | Text]
    from_width: int = 0


def draw(
    snapshot: RunSnapshot,
    events: Sequence[RunEvent] = (),
    *,
    width: int = 100,
    height: int = 50,
    hint: str = "Ctrl-C stops it",
) -> RenderableType:
    """The view, in at most `width` columns and, but for many deployments, `height` - 1 lines."""
    colours = {job.name: _JOB_COLOURS[i % len(_JOB_COLOURS)] for i, job in enumerate(snapshot.jobs)}
    nodes, jobs = snapshot.nodes[: max(2, height // 3)], snapshot.jobs[: max(2, height // 4)]
    parts: list[RenderableType] = [_title(snapshot, hint), _nodes(nodes, colours, width)]
    parts += _omitted(len(snapshot.nodes) - len(nodes), "nodes")
    parts += [_jobs(jobs, colours, width)] if jobs else []
    parts += _omitted(len(snapshot.jobs) - len(jobs), "jobs")
    parts += [_deployments(snapshot.deployments)] if snapshot.deployments else []
    used = len(parts) + len(nodes) + len(jobs) + 1
    changes = [line for line in snapshot.decisions if is_change(line.decision)]
    parts += _panels(
        height - used,
        {
            "why this size": [_why_row(job, colours) for job in jobs if _has_open_size(job)],
            "samples/s by trainers": [row for job in jobs if (row := _throughput_row(job, colours))],
            "decisions": [_change_row(line, colours) for line in changes],
            "events": _event_rows([event for event in events if event.kind != DECIDED][-_MOST_ROWS:], width),
        },
    )
    return Group(*parts)


def _title(snapshot: RunSnapshot, hint: str) -> Text:
    minutes, seconds = divmod(int(snapshot.t_s), 60)
    words = Text.assemble(("EDL ", "bold"), f"{snapshot.name}   {minutes}:{seconds:02}", (f"   {hint}", "dim"))
    return _one_line(words)


def _omitted(count: int, what: str) -> list[Text]:
    return [Text(f" ... and {count} more {what}", style="dim")] if count else []


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


# ---- nodes ----------------------------------------------------------------------------------------------------------


def _nodes(nodes: Sequence[NodeLine], colours: Mapping[str, str], width: int) -> Table:
    legend = Text.assemble("cpu   ", ("█ web  ", _WEB_COLOUR), "█ trainer  ▓ server  ▒ master  ░ leaving")
    widest_bar = min(_WIDEST_BAR, max(1, width - _BESIDE_A_BAR))
    table = Table(box=None, padding=(0, 1), expand=False)
    table.add_column("node", min_width=_SHORTEST_NAME)
    table.add_column(legend if width >= _WIDE else "cpu", no_wrap=True)
    table.add_column("used", justify="right", no_wrap=True)
    for node in nodes:
        used = sum(pod.requests.cpu_milli for pod in node.pods)
        name = Text(node.name) if node.is_open else Text(f"{node.name} (draining)", style="red")
        table.add_row(
            _one_line(name),
            _bar(node, colours, widest_bar),
            f"{format_cpu(used)}/{format_cpu(node.capacity.cpu_milli)}",
        )
    return table


def _bar(node: NodeLine, colours: Mapping[str, str], widest: int) -> Text:
    cores = max(1, node.capacity.cpu_milli) / 1000
    width = max(1, min(widest, round(cores * _BAR_CELLS_PER_CORE)))
    bar = Text()
    drawn = 0
    reached_milli = 0
    for pod in sorted(node.pods, key=_order):
        reached_milli += pod.requests.cpu_milli
        end = min(width, round(width * reached_milli / max(1, node.capacity.cpu_milli)))
        fill = "░" if pod.phase is PodPhase.TERMINATING else _FILL[pod.role]
        style = _WEB_COLOUR if pod.role is Role.EXTERNAL else colours.get(pod.owner, "white")
        bar.append(fill * (end - drawn), style=style if pod.phase is PodPhase.READY else f"{style} dim")
        drawn = end
    bar.append("·" * (width - drawn), style="dim")
    return bar


def _order(pod: PodLine) -> tuple[int, str, int]:
    return ([Role.EXTERNAL, Role.MASTER, Role.SERVER, Role.TRAINER].index(pod.role), pod.owner, pod.ordinal)


# ---- jobs and deployments -------------------------------------------------------------------------------------------


def _share(part: Callable[[JobLine], int]) -> Callable[[JobLine], str]:
    return lambda job: f"{part(job) / job.progress.total:.0%}" if job.progress and job.progress.total else "-"


def _epoch(job: JobLine) -> str:
    return f"{job.progress.epoch}/{job.progress.epochs}" if job.progress and job.progress.epochs else "-"


def _count(now: int, target: int, format_: Callable[[int, int], str]) -> Text:
    """A count, highlighted while it differs from the target."""
    return Text(format_(now, target) or "-", style="" if now == target else "bold yellow")


def _phase(job: JobLine) -> Text:
    """The job's condition; Starting until its script has declared a data set, as in a long import."""
    is_starting = job.condition == "Running" and not (job.progress and job.progress.total)
    text = "Starting" if is_starting else job.condition
    return Text(text, style={"Completed": "bold green", "Failed": "bold red"}.get(text, ""))


def _loss(job: JobLine) -> str:
    return "-" if job.progress is None or job.progress.loss is None else f"{job.progress.loss:.4f}"


_JOB_COLUMNS: Final = (
    JobColumn(title="min", cell=lambda job: str(job.min), from_width=_WIDE),
    JobColumn(title="now", cell=lambda job: _count(job.now, job.target, lambda now, _: str(now))),
    JobColumn(title="target", cell=lambda job: str(job.target)),
    JobColumn(title="max", cell=lambda job: str(job.max), from_width=_WIDE),
    JobColumn(
        title="servers", cell=lambda job: _count(job.servers + job.servers_leaving, job.servers_target, format_count)
    ),
    JobColumn(title="epoch", cell=_epoch, from_width=_WIDE),
    JobColumn(title="done", cell=_share(lambda job: job.progress.done if job.progress else 0), from_width=48),
    JobColumn(title="committed", cell=_share(lambda job: job.progress.committed if job.progress else 0), from_width=58),
    JobColumn(
        title="samples/s", cell=lambda job: f"{job.progress.samples_per_s:,.0f}" if job.progress else "-", from_width=98
    ),
    JobColumn(title="loss", cell=_loss, from_width=66),
)


def _jobs(jobs: Sequence[JobLine], colours: Mapping[str, str], width: int) -> Table:
    columns = [column for column in _JOB_COLUMNS if width >= column.from_width]
    table = Table(box=None, padding=(0, 0, 0, 1), expand=False)
    table.add_column("job", min_width=_SHORTEST_NAME)
    table.add_column("phase", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right", no_wrap=True)
    for job in jobs:
        name = _one_line(Text(job.name, style=colours.get(job.name, "")))
        table.add_row(name, _phase(job), *(column.cell(job) for column in columns))
    return table


def _deployments(deployments: Sequence[DeploymentLine]) -> Text:
    text = Text()
    for deployment in deployments:
        text.append(f" {deployment.name} ", style=f"bold {_WEB_COLOUR}")
        text.append(f"{deployment.ready}/{deployment.wanted} ready")
        if deployment.pending:
            text.append(f", {deployment.pending} wait for free capacity", style="bold yellow")
        text.append("   ")
    return text


# ---- events ---------------------------------------------------------------------------------------------------------


def _panels(free_lines: int, tables: Mapping[str, Sequence[Sequence[str | Text]]]) -> list[Panel]:
    """A framed table for each title, with the newest rows that fit into the free lines together."""
    kinds = {title: rows for title, rows in tables.items() if rows}
    panels = []
    for number, (title, rows) in enumerate(kinds.items()):
        lines = min(_MOST_ROWS, len(rows), free_lines // (len(kinds) - number) - 2)
        if lines < 1:
            continue
        table = Table.grid(padding=(0, 1))
        for row in rows[-lines:]:
            table.add_row(*(_one_line(cell if isinstance(cell, Text) else Text(escape_controls(cell))) for cell in row))
        panels.append(Panel(table, title=title, title_align="left", border_style="dim"))
        free_lines -= lines + 2
    return panels


def _has_open_size(job: JobLine) -> bool:
    return job.decision is not None and job.decision.bottleneck is not Bottleneck.NOT_ACTIVE


def _throughput_row(job: JobLine, colours: Mapping[str, str]) -> Sequence[str | Text]:
    bars = bars_of(job.throughput)
    return [Text(job.name, style=colours.get(job.name, "")), bars] if bars else []


def _why_row(job: JobLine, colours: Mapping[str, str]) -> Sequence[str | Text]:
    return Text(job.name, style=colours.get(job.name, "")), job.why


def _change_row(line: DecisionLine, colours: Mapping[str, str]) -> Sequence[str | Text]:
    decision = line.decision
    sizes = str(decision.now) if decision.now == decision.target else f"{decision.now} -> {decision.target}"
    name = Text(decision.job, style=colours.get(decision.job, ""))
    return f"{line.t_s:6.1f}s", name, sizes, str(decision.reason), decision.message


def _event_rows(events: Sequence[RunEvent], width: int) -> list[Sequence[str]]:
    """A row for each event; the message of a failure continues in more rows, for its cause may stand at its end.

    Lines of a pod's log, and what announces them, are left to `edl events`.
    """
    beside = _BESIDE_A_MESSAGE + max((len(event.object) + len(event.reason) for event in events), default=0)
    rows: list[Sequence[str]] = []
    for event in events:
        message = event.message.partition("\n")[0].removesuffix(LOG_HEADING)
        is_failure = event.kind == "Failed" and message
        lines = wrap(message, max(_SHORTEST_MESSAGE, width - beside))[:_MOST_LINES] if is_failure else [message]
        rows.append((f"{event.t_s:6.1f}s", event.object, event.reason, lines[0]))
        rows += [("", "", "", line) for line in lines[1:]]
    return rows
