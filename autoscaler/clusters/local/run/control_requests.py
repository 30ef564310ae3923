"""Requests of other terminals to a run, in kubectl's words: get, describe, scale, drain, delete, logs, events.

A request comes in as a plain mapping and is checked here; the cluster carries it out.  `control_server` is the socket,
`object_documents` the form of the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from autoscaler.clusters.local.cluster.local_jobs import to_domain
from autoscaler.clusters.local.run.local_run import LocalRun
from autoscaler.clusters.local.run.object_documents import (
    Object,
    deployment_object,
    job_object,
    node_object,
    pod_object,
)
from autoscaler.clusters.local.run.run_snapshot import JobLine, PodLine, RunSnapshot, is_change
from autoscaler.clusters.local.run_files.control_wire import RequestError, RequestProblem
from autoscaler.clusters.object_kinds import parse_object_kind
from autoscaler.clusters.resize_requests import ResizeState, find_size_problem
from autoscaler.domain import JobState, NodeName, PodName, Role
from autoscaler.jobs.lifecycle import LifeStage
from autoscaler.manifests.field_errors import did_you_mean
from autoscaler.snapshots import to_document

_EVENTS_DESCRIBED: Final = 12
_TOLD_ELSEWHERE: Final = ("Decided", "Scheduled", "Started", "Ready")
"""Kinds of events that `describe` leaves out, because decisions and the list of pods show the same."""

_MOST_REPLICAS: Final = 10_000
_MOST_EVENTS: Final = 10**12


def parse_type(word: str) -> str:
    """Return the type that a word names.  Raises RequestError."""
    try:
        return parse_object_kind(word)
    except ValueError as error:
        raise RequestError(RequestProblem.USAGE, str(error)) from None


class ControlRequests:
    """Requests to one run, carried out one after the other in its event loop."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run
        self._verbs: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
            "get": self._get,
            "describe": self._describe,
            "scale": self._scale,
            "drain": self._drain,
            "uncordon": self._uncordon,
            "delete": self._delete,
            "suspend": self._suspend,
            "logs": self._logs,
            "events": self._events,
            "status": lambda _: self._status(),
            "snapshot": lambda _: to_document(self._run.planner_snapshot()),
        }

    def do(self, request: Mapping[str, Any]) -> Any:
        """Carry out the request and return its result.  Raises RequestError, and then nothing has changed."""
        verb = request.get("do")
        if not isinstance(verb, str) or verb not in self._verbs:
            raise RequestError(RequestProblem.USAGE, f"there is no request {verb!r}; known: {', '.join(self._verbs)}")
        return self._verbs[verb](request)

    # ---- reading ------------------------------------------------------------------------------------------------

    def _get(self, request: Mapping[str, Any]) -> Sequence[Object]:
        kind, name = parse_type(_text(request, "type")), _text(request, "name") if request.get("name") else ""
        found = [o for o in objects_of(self._run.snapshot(), kind) if not name or o["metadata"]["name"] == name]
        if name and not found:
            raise self._not_found(kind, name)
        return found

    def _describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        (found,) = self._get({**request, "name": _text(request, "name")})
        kind, name = parse_type(_text(request, "type")), found["metadata"]["name"]
        snapshot = self._run.snapshot()
        pods = [pod for pod in snapshot.pods if _belongs(pod, kind, name)]
        targets = {f"{kind}/{name}", *(f"pod/{pod.name}" for pod in pods)}
        recorded = self._run.recorder.events
        told_elsewhere = _TOLD_ELSEWHERE if kind == "tj" else _TOLD_ELSEWHERE[:1]
        events = [asdict(e) for e in recorded if e.object in targets and e.kind not in told_elsewhere]
        decisions = [line for line in snapshot.decisions if kind == "tj" and line.decision.job == name]
        decisions = [line for line in decisions if is_change(line.decision)]
        return {
            "object": found,
            "pods": [pod_object(pod) for pod in pods] if kind != "pod" else [],
            "events": events[-_EVENTS_DESCRIBED:],
            "decisions": [{"t_s": line.t_s, **asdict(line.decision)} for line in decisions[-_EVENTS_DESCRIBED:]],
        }

    def _logs(self, request: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the path of the log, which the caller reads itself, also of a pod that is gone."""
        pod = self._pod_name(request)
        log = self._run.folder.log_of(pod)
        if not log.exists():
            raise self._not_found("pod", pod)
        return {"pod": pod, "log": str(log)}

    def _events(self, request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        after = _number(request, "after", most=_MOST_EVENTS) if "after" in request else 0
        return [asdict(event) for event in self._run.recorder.events if event.number > after]

    def _status(self) -> Mapping[str, Any]:
        snapshot = self._run.snapshot()
        return {
            "name": snapshot.name,
            "folder": snapshot.folder,
            "t_s": snapshot.t_s,
            "jobs": len(snapshot.jobs),
            "pods": len(snapshot.pods),
            "nodes": len(snapshot.nodes),
            "are_jobs_over": self._run.are_jobs_over(),
        }

    # ---- writing ------------------------------------------------------------------------------------------------

    def _scale(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        kind, name = parse_type(_text(request, "type")), _text(request, "name")
        if kind == "deployment":
            if request.get("replicas") is None:
                raise RequestError(RequestProblem.USAGE, "the size of a deployment is set with --replicas N")
            replicas = _number(request, "replicas", most=_MOST_REPLICAS)
            if name not in self._run.cluster.deployments:
                raise self._not_found(kind, name)
            if not request.get("dry_run"):
                self._run.cluster.scale(name, replicas)
            sizes = [{"of": "replicas", "to": replicas, "from": 0, "met": ""}]
            return {"scaled": f"deployment/{name}", "sizes": sizes, "dry_run": bool(request.get("dry_run"))}
        if kind != "tj":
            raise RequestError(RequestProblem.USAGE, f"a {kind} has no size; scale a deployment or a tj")
        return self._scale_job(request, name)

    def _scale_job(self, request: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Set trainers, servers or both, all or none; the next plan sees both."""
        asked = {Role.TRAINER: "trainers", Role.SERVER: "servers"}
        counts = {
            role: _number(request, field, most=_MOST_REPLICAS)
            for role, field in asked.items()
            if request.get(field) is not None
        }
        if not counts:
            raise RequestError(RequestProblem.USAGE, "the size of a tj is set with --trainers N, --servers N or both")
        job, cluster = self._unfinished_job(name), self._run.cluster
        planned = to_domain(cluster.jobs.records[job.name])
        for role, count in counts.items():
            if problem := find_size_problem(job.name, planned, asked[role], count):
                raise RequestError(RequestProblem.REFUSED, problem)
        ways = {role: self._under_way(job, role) for role in counts}
        met = {role: ways[role].describe(count) for role, count in counts.items()}
        if not request.get("dry_run"):
            for role, count in counts.items():
                (cluster.pin_servers if role is Role.SERVER else cluster.pin)(name, count, met=met[role])
        return {
            "scaled": f"tj/{name}",
            "sizes": [
                {"of": asked[role], "to": count, "from": ways[role].present, "met": met[role]}
                for role, count in counts.items()
            ],
            "dry_run": bool(request.get("dry_run")),
        }

    def _under_way(self, job: JobLine, role: Role) -> ResizeState:
        """How far the job is with the size that holds until now; a server is there once its master has it."""
        pods = tuple(self._run.cluster.table.job_pods(job.name, role))
        staying = [pod for pod in pods if not pod.is_leaving]
        is_server, progress = role is Role.SERVER, job.progress
        life = self._run.cluster.jobs.records[job.name].life
        there = len(staying)
        if is_server and progress is not None:
            there = sum(pod.name in progress.connected for pod in staying)
        wanted = (job.servers_pinned or job.servers_target) if is_server else (job.pinned or job.target)
        return ResizeState(
            desired=wanted if life.state is JobState.ACTIVE else there,
            present=there,
            terminating=len(pods) - len(staying),
            moving_buckets=progress.moving if is_server and progress is not None else 0,
            is_suspended=life.stage in {LifeStage.SUSPENDING, LifeStage.SUSPENDED},
        )

    def _drain(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = parse_type(_text(request, "type"))
        if kind == "node":
            node = NodeName(_text(request, "name"))
            if node not in self._run.cluster.table.nodes:
                raise self._not_found(kind, node)
            if not request.get("dry_run"):
                self._run.cluster.drain_node(node)
            return {"drained": f"node/{node}"}
        if kind == "deployment":
            raise RequestError(RequestProblem.USAGE, "a deployment is scaled, not drained; name a node, a pod or a tj")
        pod = PodName(self._pod_name(request)) if kind == "tj" else PodName(_text(request, "name"))
        if pod not in self._run.cluster.table.pods:
            raise self._not_found("pod", pod)
        if not request.get("dry_run"):
            self._run.cluster.leave(pod, why="drained by the user")
        return {"drained": f"pod/{pod}"}

    def _uncordon(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        kind, node = parse_type(_text(request, "type")), NodeName(_text(request, "name"))
        if kind != "node":
            raise RequestError(RequestProblem.USAGE, f"only nodes are opened again, as node/NAME; a {kind} is not")
        if node not in self._run.cluster.table.nodes:
            raise self._not_found(kind, node)
        self._run.cluster.drain_node(node, on=False)
        return {"uncordoned": f"node/{node}"}

    def _delete(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        kind, name = parse_type(_text(request, "type")), _text(request, "name")
        self._get({"type": kind, "name": name})
        match kind:
            case "tj":
                self._run.cluster.delete_job(name)
            case "deployment":
                self._run.cluster.delete_deployment(name)
            case "pod":
                self._run.cluster.leave(PodName(name), why="deleted by the user")
            case _:
                raise RequestError(RequestProblem.USAGE, "nodes of a run are fixed; edl drain node/NAME empties one")
        return {"deleted": f"{kind}/{name}"}

    def _suspend(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        kind, on = parse_type(_text(request, "type")), bool(request.get("on", True))
        if kind != "tj":
            raise RequestError(
                RequestProblem.USAGE, f"only jobs are suspended and resumed, as tj/NAME; a {kind} is not"
            )
        name = self._unfinished_job(_text(request, "name")).name
        self._run.cluster.suspend(name, on=on)
        return {"suspended" if on else "resumed": f"tj/{name}"}

    # ---- finding ------------------------------------------------------------------------------------------------

    def _job(self, name: str) -> JobLine:
        job = next((job for job in self._run.snapshot().jobs if job.name == name), None)
        if job is None:
            raise self._not_found("tj", name)
        return job

    def _unfinished_job(self, name: str) -> JobLine:
        job = self._job(name)
        if self._run.cluster.jobs.records[name].life.ending is not None:
            raise RequestError(
                RequestProblem.REFUSED, f"tj/{name} is {job.condition}; nothing of it can be changed any more"
            )
        return job

    def _pod_name(self, request: Mapping[str, Any]) -> str:
        """Return the pod that TYPE/NAME with --trainer N, --server N or --master names."""
        kind, name = parse_type(_text(request, "type")), _text(request, "name")
        if kind == "pod":
            return name
        if kind != "tj":
            raise RequestError(RequestProblem.USAGE, f"name a pod or a tj, not a {kind}")
        role = request.get("role") or Role.TRAINER
        if role not in {Role.TRAINER, Role.SERVER, Role.MASTER}:
            raise RequestError(RequestProblem.USAGE, f"there is no role {role}")
        ordinal = request.get("ordinal")
        if ordinal is None:
            pods = [p for p in self._run.snapshot().pods if p.owner == name and p.role == role]
            if not pods:
                self._job(name)
                raise RequestError(RequestProblem.NOT_FOUND, f"tj/{name} has no {role} now; choose one by its number")
            return min(pods, key=lambda p: p.ordinal).name
        return f"{name}-{role}-{_number(request, 'ordinal', most=_MOST_REPLICAS)}"

    def _not_found(self, kind: str, name: str) -> RequestError:
        names = [str(found["metadata"]["name"]) for found in objects_of(self._run.snapshot(), kind)]
        hint = did_you_mean(name, names) if names else f"there is no {kind} at all"
        return RequestError(RequestProblem.NOT_FOUND, f"there is no {kind}/{name}; {hint}")


def objects_of(snapshot: RunSnapshot, kind: str) -> list[Object]:
    """Return every object of a type, by name."""
    match kind:
        case "tj":
            found = [job_object(job) for job in snapshot.jobs]
        case "node":
            found = [node_object(node) for node in snapshot.nodes]
        case "pod":
            found = [pod_object(pod) for pod in snapshot.pods]
        case "deployment":
            found = [deployment_object(deployment) for deployment in snapshot.deployments]
        case _:
            raise RequestError(RequestProblem.USAGE, f"there is no type {kind}")
    return sorted(found, key=lambda o: str(o["metadata"]["name"]))


def _belongs(pod: PodLine, kind: str, name: str) -> bool:
    """True if `describe` shows the pod beside the object of this type and name."""
    match kind:
        case "tj":
            return pod.owner == name and pod.role is not Role.EXTERNAL
        case "deployment":
            return pod.owner == name and pod.role is Role.EXTERNAL
        case "node":
            return pod.node == name
        case _:
            return pod.name == name


def _text(request: Mapping[str, Any], field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str) or not value:
        raise RequestError(RequestProblem.USAGE, f"{field} is missing")
    return value


def _number(request: Mapping[str, Any], field: str, *, most: int) -> int:
    value = request.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RequestError(RequestProblem.USAGE, f"{field} is a whole number from 0 to {most}, not {value!r}")
    return value
