"""The form of a report in Kubernetes: the status of a NodeGpus object, which the agent writes and the operator reads.

The definition of NodeGpus (charts/edl/files/nodegpus.yaml) bounds the same fields; a reader checks them again, since
an older definition, or none of ours, may stand in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.domain.cluster import NodeName, PodName
from autoscaler.domain.gpu_reports import MOST_GPUS, MOST_PODS, GpuReport, GpuVerdict, NodeGpuReport
from autoscaler.errors import InvalidSpecError

API_VERSION: Final = "edl.dev/v1alpha1"
KIND: Final = "NodeGpus"
PLURAL: Final = "nodegpus"


def make_object(node: NodeName, node_uid: str) -> dict[str, Any]:
    """A new object of this node, without a status.  With the node's UID it goes with its Node."""
    metadata: dict[str, Any] = {"name": node}
    if node_uid:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}]
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}


def make_status(report: NodeGpuReport) -> dict[str, Any]:
    """The status that tells this report."""
    return {"reportTime": to_time(report.reported_at_s), "gpus": [_gpu_content(one) for one in report.gpus]}


def parse_report(raw: Mapping[str, Any]) -> NodeGpuReport | None:
    """The report of a NodeGpus object; None while its agent has not reported.

    Raises:
        InvalidSpecError: a field is missing, of another type or outside its range; `path` is the field.
    """
    node = _text(_field(raw, "metadata", dict, "metadata"), "name", "metadata.name")
    status = raw.get("status")
    if status is None or status == {}:
        return None
    if not isinstance(status, dict):
        raise InvalidSpecError("status", "is no object")
    gpus = status.get("gpus") or []
    if not isinstance(gpus, list) or len(gpus) > MOST_GPUS:
        raise InvalidSpecError("status.gpus", f"is no list of at most {MOST_GPUS} GPUs")
    parsed = tuple(_parse_gpu(one, f"status.gpus[{index}]") for index, one in enumerate(gpus))
    try:
        reported_at_s = parse_time(_text(status, "reportTime", "status.reportTime"), "status.reportTime")
        return NodeGpuReport(node=NodeName(node), gpus=parsed, reported_at_s=reported_at_s)
    except InvalidSpecError as error:
        path = error.path if error.path.startswith("status.") else f"status.{error.path}"
        raise InvalidSpecError(path, error.problem, error.hint) from None


def renewal_asked_at_s(raw: Mapping[str, Any]) -> float | None:
    """Unix time after which the operator wants a report; None if it asks for none, or not in a time's form."""
    spec = raw.get("spec")
    asked = spec.get("renewAfter") if isinstance(spec, dict) else None
    try:
        return parse_time(asked, "spec.renewAfter") if isinstance(asked, str) else None
    except InvalidSpecError:
        return None


def to_time(at_s: float) -> str:
    """RFC 3339, to the microsecond."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str, path: str) -> float:
    """Unix time of an RFC 3339 text.  Raises InvalidSpecError."""
    try:
        moment = datetime.fromisoformat(text[:40])
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidSpecError(path, "is no time", "write it as 2026-01-31T12:00:00Z") from None


def _gpu_content(one: GpuReport) -> dict[str, Any]:
    content: dict[str, Any] = {"uuid": one.uuid, "model": one.model, "verdict": one.verdict.value}
    if one.name:
        content["name"] = one.name
    if one.low_since_s is not None:
        content["lowSince"] = to_time(one.low_since_s)
    if one.pods:
        content["pods"] = list(one.pods)
    if one.reason:
        content["reason"] = one.reason
    if one.busy_ratio is not None:
        content["busyPercent"] = round(100 * one.busy_ratio)
    if one.watts is not None:
        content["watts"] = round(one.watts)
    return content


def _parse_gpu(raw: Any, path: str) -> GpuReport:
    if not isinstance(raw, dict):
        raise InvalidSpecError(path, "is no object")
    verdict = _text(raw, "verdict", f"{path}.verdict")
    if verdict not in set(GpuVerdict):
        raise InvalidSpecError(f"{path}.verdict", f"{verdict[:20]} is none", f"one of {', '.join(GpuVerdict)}")
    pods = raw.get("pods") or []
    if not isinstance(pods, list) or len(pods) > MOST_PODS or not all(isinstance(pod, str) for pod in pods):
        raise InvalidSpecError(f"{path}.pods", f"is no list of at most {MOST_PODS} names")
    low_since = raw.get("lowSince")
    try:
        busy_percent = _number(raw, "busyPercent")
        return GpuReport(
            uuid=_text(raw, "uuid", "uuid"),
            model=_text(raw, "model", "model"),
            name=_text(raw, "name", "name") if "name" in raw else "",
            verdict=GpuVerdict(verdict),
            low_since_s=None if low_since is None else parse_time(_text(raw, "lowSince", "lowSince"), "lowSince"),
            pods=tuple(PodName(pod) for pod in pods),
            reason=_text(raw, "reason", "reason") if "reason" in raw else "",
            busy_ratio=None if busy_percent is None else busy_percent / 100,
            watts=_number(raw, "watts"),
        )
    except InvalidSpecError as error:
        raise InvalidSpecError(f"{path}.{error.path}", error.problem, error.hint) from None


def _field(raw: Mapping[str, Any], name: str, kind: type, path: str) -> Any:
    value = raw.get(name)
    if not isinstance(value, kind):
        raise InvalidSpecError(path, f"is missing, or no {kind.__name__}")
    return value


def _text(raw: Mapping[str, Any], name: str, path: str) -> str:
    return str(_field(raw, name, str, path))


def _number(raw: Mapping[str, Any], name: str) -> float | None:
    value = raw.get(name)
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, int | float):
            return float(value)
    except OverflowError:  # JSON has integers of any length
        pass
    raise InvalidSpecError(name, "is no number, or too long a one")
