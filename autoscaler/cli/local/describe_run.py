"""Description of a run's objects for `edl describe`, and the lines of `edl events`.  Pure.

The reason for a job's size stands among the first lines; `edl get -o yaml` prints every field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autoscaler.cli.output.formats import section
from autoscaler.cli.output.object_tables import format_table
from autoscaler.cli.output.phrases import format_age, format_copies, format_server_bounds

Fields = Mapping[str, Any]


def job_lines(job: Fields) -> list[str]:
    """State of a job, one subject a line."""
    return [f"{title + ':':<12} {text}" for title, text in _job_subjects(job["spec"], job["status"], job["metadata"])]


def section_lines(answer: Fields) -> list[str]:
    """The object's pods, decisions and events, each below a heading."""
    return [
        *section("Pods", format_table(answer["pods"], is_wide=False)),
        *section("Decisions", map(_decision_line, answer["decisions"])),
        *section("Events", map(format_event, answer["events"])),
    ]


def format_event(event: Fields) -> str:
    """The event as one line, or as many as its message has."""
    first, *rest = str(event["message"]).splitlines() or [""]
    head = f"{event['t_s']:8.1f}s  {event['object']:<24} {event['reason']:<14} {first}".rstrip()
    return "\n".join([head, *(" " * 11 + line for line in rest)])


def _job_subjects(spec: Fields, status: Fields, metadata: Fields) -> Iterator[tuple[str, str]]:
    yield "Job", f"{metadata['name']}, {spec['priorityClassName']}, weight {spec['weight']}"
    message = status["conditions"][0]["message"]
    yield "Phase", f"{status['phase']}, {format_age(status['ageSeconds'])} old" + (f": {message}" if message else "")
    pinned, trainers = spec["trainer"]["replicas"], spec["trainer"]
    allowed = f"pinned to {pinned}" if pinned else f"{trainers['minReplicas']} to {trainers['maxReplicas']} allowed"
    yield "Trainers", f"{status['trainers']} now, {status['target']} wanted ({allowed})"
    if status["decision"] is not None and status["decision"]["bottleneck"] != "NotActive":
        yield "Why", status["decision"]["message"]
    if (servers := spec["parameterServer"]) is not None:
        yield "Servers", _servers(servers, status)
    if status["serversHint"]:
        yield "Hint", status["serversHint"]
    yield "Master", "ready" if status["masterReady"] else "not ready"
    if (progress := status["progress"]) is not None:
        yield from _progress_subjects(progress)
    for one in status["conditions"][1:]:
        if one["status"] != "True":
            title = "Training" if one["type"] == "Progressing" else "Saving"
            yield title, f"{one['reason']}: {one['message']}"
    yield "Failures", f"{status['failuresInARow']} in a row; {spec['runPolicy']['backoffLimit']} fail the job"
    yield "Checkpoints", spec["checkpoint"]["uri"]


def _servers(servers: Fields, status: Fields) -> str:
    bounds = format_server_bounds(
        low=servers["minReplicas"],
        high=servers["maxReplicas"],
        pinned=servers["replicas"],
        trainers_per_server=status["trainersPerServer"],
        is_measured=isinstance(servers["trainersPerServer"], str),  # auto
    )
    progress = status["progress"] or {}
    leaving, moving = status["serversLeaving"], progress.get("moving", 0)
    line = f"{status['servers']} now, {status['serversTarget']} wanted ({bounds})"
    line += f"; {leaving} {'is' if leaving == 1 else 'are'} leaving" if leaving else ""
    if status["servers"] and progress.get("lineage"):  # there is a model
        line += format_copies(servers["copies"], progress["single_copy_buckets"])
    return line + (f"; {moving} buckets are moving" if moving else "")


def _progress_subjects(progress: Fields) -> Iterator[tuple[str, str]]:
    epochs = f"epoch {progress['epoch']} of {progress['epochs']}, {progress['done']:,} of {progress['total']:,} samples"
    yield "Progress", f"{epochs} done, {progress['committed']:,} committed, {progress['samples_per_s']:,.0f}/s"
    yield "Rolled back", f"{progress['reworked']:,} re-worked, {progress['quarantined']:,} quarantined"
    if progress["metrics"]:
        yield "Metrics", ", ".join(f"{name} {value:.4g}" for name, value in progress["metrics"])


def _decision_line(decision: Fields) -> str:
    return (
        f"{decision['t_s']:8.1f}s  {decision['reason']:<9} {decision['now']} -> {decision['target']}"
        f"  {decision['message']}"
    )
