"""Events of a run, derived from the changes of its objects and written to the run's journal.

A job's are the operator's own events; those of pods, Deployments and nodes are differences of their objects.  Not here:
decisions of the planner (`decision_journal`).  It also knows, to the moment, how long each pod was pending: times in
objects are whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, EVENTS, NODES, PODS, TRAINING_JOBS, Kind
from autoscaler.clusters.kubernetes.memory_api.watch_history import ObjectChange
from autoscaler.clusters.kubernetes.objects.fields import (
    EMPTY,
    ENDED_PHASES,
    Raw,
    condition_of,
    controller_of,
    integer,
    part,
    parts,
    text,
)
from autoscaler.clusters.kubernetes.objects.labels import DRAIN, TIER
from autoscaler.clusters.kubernetes.parsing.resize_state import parse_resize_state
from autoscaler.clusters.local.control_plane.kubelet import GRACE_OVER
from autoscaler.clusters.local.control_plane.pod_annotations import PID
from autoscaler.clusters.local.machine.pod_logs import describe_exit
from autoscaler.clusters.local.run_files.run_journal import RunJournal
from autoscaler.domain import Reason
from autoscaler.fault_isolation import GuardedTask, JobErrors, raw_object_key

_DECISIONS: Final = frozenset(reason.value for reason in Reason)
_SIGNALLED: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """One event to be: see `RunJournal.record_event`."""

    kind: str
    reason: str
    message: str = ""


class EventJournal:
    """Writes every change that people want to read of into `journal`; `errors` keeps faults with one object."""

    def __init__(self, journal: RunJournal, *, clock: Callable[[], float], errors: JobErrors) -> None:
        self.journal = journal
        self._clock = clock
        self._errors = errors
        self._created_at_s: dict[str, float] = {}  # by UID, of pods that stand
        self._pending_s: dict[str, float] = {}

    def handle_changes(self, changes: Sequence[ObjectChange]) -> None:
        """Take in changes, in order and each once (`ControlPlane`)."""
        for change in changes:
            if (write := _WRITERS.get(change.kind)) is None:
                continue
            raw = change.after or change.before or EMPTY
            kind = change.kind.plural
            self._errors.attempt(
                raw_object_key(kind, raw), GuardedTask.EVENT, partial(self._handle, change, raw, write)
            )

    def pending_s(self, pod: Raw) -> float | None:
        """Seconds from the pod's creation until it was ready first; None: it has not been."""
        return self._pending_s.get(text(pod, "metadata", "uid"))

    def _handle(self, change: ObjectChange, raw: Raw, write: Callable[[Raw, Raw], Iterator[EventDraft]]) -> None:
        if change.kind == PODS:
            self._keep_times(change, text(raw, "metadata", "uid"))
        target = _target_of(change.kind, raw)
        for line in write(change.before or EMPTY, change.after or EMPTY):
            self.journal.record_event(line.kind, target, line.reason, line.message)

    def _keep_times(self, change: ObjectChange, uid: str) -> None:
        if change.after is None:
            self._created_at_s.pop(uid, None)
            self._pending_s.pop(uid, None)
            return
        created_at_s = self._created_at_s.setdefault(uid, self._clock())
        if _is_ready(change.after):
            self._pending_s.setdefault(uid, round(self._clock() - created_at_s, 3))


def _target_of(kind: Kind, raw: Raw) -> str:
    name = text(raw, "metadata", "name")
    if kind == EVENTS:
        return f"tj/{text(raw, 'regarding', 'name')}"
    return f"{_SHORT[kind]}/{name}"


# ---- events by kind; `before` and `after` a change are empty where there was or is no object -------------------------


def _describe_event(before: Raw, after: Raw) -> Iterator[EventDraft]:
    """An event of the operator about a job; later ones of its series, and decisions, are left out."""
    if before:
        return
    reason, is_warning = text(after, "reason"), text(after, "type") == "Warning"
    if is_warning or reason not in _DECISIONS:
        yield EventDraft(kind="Failed" if is_warning else "Job", reason=reason, message=text(after, "note"))


def _describe_job(before: Raw, after: Raw) -> Iterator[EventDraft]:
    if not before:
        yield EventDraft(kind="Submitted", reason="Submitted")
    elif not after:
        yield EventDraft(kind="Job", reason="Gone")
    else:
        if _is_deleting(after) and not _is_deleting(before):
            yield EventDraft(kind="Job", reason="DeletionRequested")
        for role, word in (("trainer", "trainers"), ("parameterServer", "servers")):
            was, wanted = (integer(one, "spec", role, "replicas") for one in (before, after))
            if wanted == was:
                continue
            replaced = parse_resize_state(before, word).describe(wanted)
            note = f"; {replaced}" if replaced else ""
            if wanted:
                yield EventDraft(kind="Resized", reason="Pinned", message=f"pinned to {wanted} {word}{note}")
            else:
                yield EventDraft(
                    kind="Resized", reason="Unpinned", message=f"EDL decides the number of {word} again{note}"
                )


def _describe_deployment(before: Raw, after: Raw) -> Iterator[EventDraft]:
    """A Deployment of a user's: a job's masters belong to the job."""
    if controller_of(after or before):
        return
    was, wanted = (integer(one, "spec", "replicas", default=1) for one in (before, after))
    if not before:
        yield EventDraft(kind="Submitted", reason="Submitted", message=f"{wanted} replicas wanted")
    elif not after:
        yield EventDraft(kind="Deleted", reason="Gone")
    elif wanted != was:
        yield EventDraft(kind="Resized", reason="Scaled", message=f"from {was} to {wanted} replicas")


def _describe_node(before: Raw, after: Raw) -> Iterator[EventDraft]:
    was, is_draining = (DRAIN in part(one, "metadata", "labels") for one in (before, after))
    if was != is_draining:
        kind, reason = ("Drained", "Draining") if is_draining else ("Opened", "Uncordoned")
        yield EventDraft(kind=kind, reason=reason)


def _describe_pod(before: Raw, after: Raw) -> Iterator[EventDraft]:
    if not after:
        if text(before, "status", "phase") not in ENDED_PHASES:
            yield EventDraft(kind="Exited", reason="Gone", message="it had no process yet")
        return
    node = text(after, "spec", "nodeName")
    if not before:
        yield EventDraft(kind="Created", reason="Pending", message="waits for a node")
    if node and not text(before, "spec", "nodeName"):
        tier = text(after, "metadata", "labels", TIER)
        yield EventDraft(kind="Scheduled", reason="Scheduled", message=f"{tier} on {node}" if tier else f"to {node}")
    elif _is_unschedulable(after) and not _is_unschedulable(before):
        yield EventDraft(kind="Scheduled", reason="Unschedulable", message="no node has free capacity for it")
    yield from _describe_process(before, after, node)


def _describe_process(before: Raw, after: Raw, node: str) -> Iterator[EventDraft]:
    was, pid = (text(one, "metadata", "annotations", PID) for one in (before, after))
    status, status_before = (next(iter(parts(one, "status", "containerStatuses")), EMPTY) for one in (after, before))
    waiting = part(status, "state", "waiting")
    if pid and pid != was:
        yield EventDraft(kind="Started", reason="Started", message=f"pid {pid} on {node}")
    if _is_ready(after) and not _is_ready(before):
        yield EventDraft(kind="Ready", reason="Ready", message=f"on {node}")
    if waiting and (waiting, _restarts(status)) != (part(status_before, "state", "waiting"), _restarts(status_before)):
        yield _describe_waiting(waiting, part(status, "lastState", "terminated"))
    if _is_deleting(after) and not _is_deleting(before):
        grace_s = integer(after, "metadata", "deletionGracePeriodSeconds")
        yield EventDraft(
            kind="Drained" if grace_s else "Killed",
            reason="Leaving",
            message=f"has {grace_s} s to end" if grace_s else "",
        )
    if text(after, "status", "phase") in ENDED_PHASES and text(before, "status", "phase") not in ENDED_PHASES:
        ended = part(status, "state", "terminated")
        if text(ended, "reason") == GRACE_OVER:
            grace_s = integer(after, "metadata", "deletionGracePeriodSeconds")
            message = f"pid {was} did not leave within its grace of {grace_s} s"
            yield EventDraft(kind="Killed", reason=GRACE_OVER, message=message)
        yield EventDraft(kind="Exited", reason="Gone", message=_exit_of(ended))


def _describe_waiting(waiting: Raw, ended: Raw) -> EventDraft:
    """Line on why no process of the pod runs now: the last one has ended, or the machine is full."""
    if not ended:
        return EventDraft(kind="Failed", reason=text(waiting, "reason"), message=text(waiting, "message"))
    _, _, following = text(waiting, "message").partition("; ")
    return EventDraft(
        kind="Exited", reason="Restarting", message=f"{_exit_of(ended)}{text(ended, 'message')}\n{following}"
    )


def _exit_of(ended: Raw) -> str:
    code = integer(ended, "exitCode")
    return describe_exit(_SIGNALLED - code if code > _SIGNALLED else code)


def _restarts(status: Raw) -> int:
    return integer(status, "restartCount")


def _is_ready(pod: Raw) -> bool:
    return condition_of(pod, "Ready").get("status") == "True"


def _is_unschedulable(pod: Raw) -> bool:
    return condition_of(pod, "PodScheduled").get("reason") == "Unschedulable"


def _is_deleting(raw: Raw) -> bool:
    return bool(text(raw, "metadata", "deletionTimestamp"))


_SHORT: Final = {DEPLOYMENTS: "deployment", NODES: "node", PODS: "pod", TRAINING_JOBS: "tj"}
_WRITERS: Final[dict[Kind, Callable[[Raw, Raw], Iterator[EventDraft]]]] = {
    DEPLOYMENTS: _describe_deployment,
    EVENTS: _describe_event,
    NODES: _describe_node,
    PODS: _describe_pod,
    TRAINING_JOBS: _describe_job,
}
