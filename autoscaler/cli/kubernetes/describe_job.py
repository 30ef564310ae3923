"""Description of a cluster's job for `edl describe`: its status in lines for people.  Pure.

The reason for the job's size is among the first lines; `edl get -o yaml` prints every field.
"""

from __future__ import annotations

from collections.abc import Iterator

from autoscaler.cli.output.object_tables import PlainObject
from autoscaler.cli.place_values import JobFacts
from autoscaler.clusters.kubernetes.objects.fields import condition_of, created_at_s, integer, part, parts, text, unix_s
from autoscaler.jobs.server_ratio import describe_data_wait, find_hint
from autoscaler.views.jobs.remaining_time import format_remaining, remaining_of
from autoscaler.views.jobs.reported_metrics import job_metrics
from autoscaler.views.object_states import holding_conditions, job_message
from autoscaler.views.phrases import format_age, format_copies, format_ending, format_server_bounds

_HEALTHY_REASONS = frozenset({"NotActive", "Waiting"})
_ENDINGS = ("Completed", "Failed")


def job_lines(job: PlainObject, now_s: float) -> list[str]:
    """A job's state, one subject a line."""
    return [f"{title + ':':<12} {line}" for title, line in _subjects(job, now_s)]


def resize_lines(job: PlainObject, now_s: float) -> list[str]:
    """The last resizes of the job, newest first."""
    return [_resize(resize, now_s) for resize in parts(job, "status", "resizes")]


def _subjects(job: PlainObject, now_s: float) -> Iterator[tuple[str, str]]:
    status, trainers = part(job, "status"), part(job, "status", "trainers")
    where = f"{text(job, 'metadata', 'namespace')}/{text(job, 'metadata', 'name')}"
    yield "Job", f"{where}, {text(job, 'spec', 'priorityClassName') or 'edl-core'}, weight {_weight(job)}"
    age = format_age(max(0.0, now_s - created_at_s(job)))
    if not status:
        yield "State", f"{age} old; no operator has reconciled it yet (kubectl -n edl-system get pods)"
        return
    since_s = unix_s(text(status, "waitingSince"))
    waits = "" if since_s is None else f", has waited for free capacity for {format_age(max(0.0, now_s - since_s))}"
    if position := integer(status, "queuePosition"):
        waits += f", number {position:,} of those that wait"
    yield "State", f"{', '.join(holding_conditions(job)) or 'waiting'}; {age} old{waits}"
    yield (
        "Trainers",
        f"{integer(trainers, 'ready')} ready, {integer(trainers, 'target')} wanted ({_allowed(job)}){_tiers(job)}",
    )
    if why := job_message(job):
        yield "Why", f"{text(job, 'status', 'reason')}: {why}"
    yield from _other_messages(job)
    if part(job, "spec", "parameterServer"):
        yield "Servers", _servers(job)
        if hint := _hint(job):
            yield "Hint", hint
    elif hint := describe_data_wait(servers=0, waiting_share=waiting_share_of(job)):
        yield "Hint", hint
    leader = text(job, "status", "master", "leader")
    masters = f"{integer(job, 'status', 'master', 'ready')} of {integer(job, 'spec', 'master', 'replicas', default=1)}"
    yield "Masters", f"{masters} ready" + (f", {leader} leads" if leader else "")
    yield from _progress_subjects(job, now_s)
    if metrics := job_metrics(job):
        yield "Metrics", f"{metrics} (reported by the script, mean over its trainers)"
    failures, limit = integer(job, "status", "failures"), integer(job, "spec", "runPolicy", "backoffLimit", default=6)
    yield "Failures", f"{failures} since the last completed batch; {limit} fail the job (backoffLimit)"
    yield "Folder", text(job, "spec", "checkpoint", "uri")
    if integer(job, "status", "observedGeneration") < integer(job, "metadata", "generation"):
        yield "Note", "the operator has not seen the last change of this job yet"


def _progress_subjects(job: PlainObject, now_s: float) -> Iterator[tuple[str, str]]:
    if integer(job, "status", "progress", "samplesTotal"):  # a data set is declared
        yield "Progress", _progress(job, now_s)
        if not any(condition_of(job, one).get("status") == "True" for one in _ENDINGS):
            yield "Remaining", _remaining(job)
    if integer(job, "status", "progress", "steps"):
        yield "Group", _group(job)


def _other_messages(job: PlainObject) -> Iterator[tuple[str, str]]:
    """Messages of conditions whose reason is not the one above."""
    chief = text(job, "status", "reason")
    for kind in ("Failed", "Degraded", "Suspended"):
        one = condition_of(job, kind)
        if one.get("status") == "True" and text(one, "reason") != chief and text(one, "message"):
            yield kind, text(one, "message")
    for kind, title in (("Progressing", "Training"), ("CheckpointsCurrent", "Checkpoints")):
        one = condition_of(job, kind)
        if _is_trouble(one) and text(one, "reason") != chief and text(one, "message"):
            yield title, f"{text(one, 'reason')}: {text(one, 'message')}"
    progressing = condition_of(job, "Progressing")
    _, _, told = text(progressing, "message").partition("; ")  # `jobs.training_health`: what the master tells beside
    if progressing.get("status") == "True" and told:
        yield "Training", told
    if idle := text(condition_of(job, "Idle"), "message"):
        yield "Idle", f"{text(condition_of(job, 'Idle'), 'reason')}: {idle}"


def _is_trouble(condition: PlainObject) -> bool:
    return condition.get("status") in {"False", "Unknown"} and text(condition, "reason") not in _HEALTHY_REASONS


def _allowed(job: PlainObject) -> str:
    trainer = part(job, "spec", "trainer")
    pinned = integer(trainer, "replicas")
    return (
        f"pinned to {pinned}"
        if pinned
        else f"{integer(trainer, 'minReplicas')} to {integer(trainer, 'maxReplicas')} allowed"
    )


def _servers(job: PlainObject) -> str:
    spec, status = part(job, "spec", "parameterServer"), part(job, "status", "servers")
    low = integer(spec, "minReplicas")
    bounds = format_server_bounds(
        low=low,
        high=integer(spec, "maxReplicas", default=low),
        pinned=integer(spec, "replicas"),
        trainers_per_server=integer(spec, "trainersPerServer", default=integer(status, "trainersPerServer", default=4)),
        is_measured=_is_ratio_measured(job),
    )
    draining, leaving, moving = (integer(status, name) for name in ("draining", "leaving", "movingBuckets"))
    line = f"{integer(status, 'ready')} ready, {integer(status, 'target')} wanted ({bounds})"
    line += f"; {draining} {'is' if draining == 1 else 'are'} draining" if draining else ""
    line += f"; {leaving} {'is' if leaving == 1 else 'are'} leaving" if leaving else ""
    line += f"; {moving} {'bucket is' if moving == 1 else 'buckets are'} moving" if moving else ""
    return line + format_copies(integer(status, "copies", default=1), integer(status, "singleCopies"))


def job_facts_of(job: PlainObject, now_s: float) -> JobFacts:
    """Facts of a cluster's job that no plan has."""
    ended_at_s = unix_s(text(job, "status", "completionTime"))
    age_s = None if ended_at_s is None else now_s - ended_at_s
    endings = {one: condition_of(job, one) for one in _ENDINGS}
    ended = [format_ending(name, age_s, text(o, "message")) for name, o in endings.items() if o.get("status") == "True"]
    idle, progressing = condition_of(job, "Idle"), condition_of(job, "Progressing")
    return JobFacts(
        ended="".join(ended[:1]),
        not_training=f"{text(progressing, 'reason')}: {text(progressing, 'message')}"
        if _is_trouble(progressing)
        else "",
        idle=text(idle, "message") if idle.get("status") == "True" else "",
        is_ratio_measured=_is_ratio_measured(job),
    )


def _is_ratio_measured(job: PlainObject) -> bool:
    return bool(text(job, "spec", "parameterServer", "trainersPerServer"))  # auto


def waiting_share_of(job: PlainObject) -> float:
    """Share of the trainers' time, 0 to 1, that they waited for parameter servers, in a group for data."""
    return min(100, max(0, integer(job, "status", "progress", "waitingPercent"))) / 100


def _hint(job: PlainObject) -> str:
    """Hint at a better number of servers, while the job trains."""
    spec, ready = part(job, "spec", "parameterServer"), integer(job, "status", "servers", "ready")
    found = find_hint(servers=ready, waiting_share=waiting_share_of(job))
    if found is None or condition_of(job, "Progressing").get("status") != "True":
        return ""
    return found.describe(integer(spec, "maxReplicas", default=integer(spec, "minReplicas")))


def _tiers(job: PlainObject) -> str:
    trainers = part(job, "status", "trainers")
    counts = [f"{integer(trainers, tier)} {tier}" for tier in ("core", "surplus", "leaving") if integer(trainers, tier)]
    return f": {', '.join(counts)}" if counts else ""


def _progress(job: PlainObject, now_s: float) -> str:
    progress = part(job, "status", "progress")
    items = [f"epoch {integer(progress, 'epoch')} of {integer(progress, 'epochs')}"]
    items.append(
        f"{integer(progress, 'samplesCommitted'):,} of {integer(progress, 'samplesTotal'):,} samples committed"
    )
    if percent := text(progress, "percent"):
        items.append(percent)
    if rate := integer(progress, "samplesPerSecond"):
        items.append(f"{rate:,} samples/s")
    if "stoppedAtStep" in progress:
        steps = f"{integer(progress, 'stoppedAtStep'):,} of {integer(progress, 'steps'):,}"
        items.append(f"ended early by its script, after step {steps}")
    if quarantined := integer(progress, "samplesQuarantined"):
        items.append(f"{quarantined:,} quarantined")
    at_s = unix_s(text(progress, "lastCheckpointTime"))
    if at_s is not None:
        items.append(f"checkpoint {format_age(max(0.0, now_s - at_s))} ago")
    return ", ".join(items)


def _remaining(job: PlainObject) -> str:
    """Line of how long the job takes at the size that is wanted."""
    found = remaining_of(job)
    if found is None:
        return "unknown"
    return f"{format_remaining(found)} with {found.trainers} {'trainer' if found.trainers == 1 else 'trainers'}"


def _group(job: PlainObject) -> str:
    """Line of a group: its step, the pause of its last resize, and when its replicas were compared."""
    progress = part(job, "status", "progress")
    pause_ms = integer(progress, "resizePauseMilliseconds")
    paused = f", the last resize paused it for {pause_ms:,} ms" if pause_ms else ""
    told = part(progress, "replicas")
    alike = f", {integer(told, 'trainers'):,} equal replicas at step {integer(told, 'step'):,}" if told else ""
    return f"step {integer(progress, 'step'):,} of {integer(progress, 'steps'):,}{paused}{alike}"


def _resize(resize: PlainObject, now_s: float) -> str:
    at_s = unix_s(text(resize, "time"))
    age = "" if at_s is None else f"{format_age(max(0.0, now_s - at_s))} ago"
    sizes = f"{integer(resize, 'from')} -> {integer(resize, 'to')}"
    by = f" by {found}" if (found := text(resize, "by")) else ""
    whose = "servers: " if text(resize, "role") == "server" else ""
    return f"{age:>10}  {sizes:<10} {whose}{text(resize, 'cause')}{by}  {text(resize, 'message')}".rstrip()


def _weight(job: PlainObject) -> int:
    return integer(job, "spec", "weight", default=100)
