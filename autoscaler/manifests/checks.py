"""Checks across fields: sizes that contradict each other, missing requests, names that nothing defines.

Each check reads the plain content and passes over values of the wrong type, which `document_schema` reports; so all
errors of a file are reported at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from autoscaler.domain import NOTHING, Shape, TrainerSpec
from autoscaler.domain.jobs import SIZES_BESIDE_POWERS, STEP_BESIDE_SIZES, find_size_problem, is_power_of_two
from autoscaler.manifests.api_types import (
    CORE_CLASS,
    GROUP_BESIDE_SERVERS,
    MEASURED_ALONE,
    MOST_COPIES,
    GroupShares,
    too_many_copies,
)
from autoscaler.manifests.documents import Document, PathStep
from autoscaler.manifests.field_errors import FieldError, did_you_mean
from autoscaler.manifests.ignored_fields import template_paths, value_at
from autoscaler.manifests.pod_fields import check_fields
from autoscaler.manifests.pod_values import check_values

_REQUESTS_HINT: Final = (
    'add resources: {requests: {cpu: "1", memory: 512Mi}}; requests are what the planner counts, so a pod without them '
    "has no size"
)

_ROLES: Final = frozenset({"trainer", "server", "master"})


def check_document(document: Document) -> Iterator[FieldError]:
    """Errors across the fields of one document."""
    match document.kind:
        case "TrainingJob":
            yield from _check_sizes(document, "trainer")
            yield from _check_sizes(document, "parameterServer")
            yield from _check_server_sizes(document)
            yield from _check_allowed_sizes(document)
            yield from _check_roles(document)
            yield from _check_group(document)
        case "Deployment":
            yield from _check_requests(document, ("spec", "template"))
            yield from _check_command(document, ("spec", "template"))
        case "PriorityClass":
            yield from _check_class(document)
        case _:
            pass


def check_templates(document: Document) -> Iterator[FieldError]:
    """Errors of pod templates that any Kubernetes would refuse, also in fields that a process ignores."""
    for path in template_paths(document.kind):
        if (template := value_at(document.content, path)) is None:
            continue
        role = None if document.kind == "Deployment" else str(path[1])
        for finding in (*check_fields(template), *check_values(template, role, value_at(document.content, ("spec",)))):
            yield document.field_error((*path, *finding.path), finding.problem, finding.hint)


def check_together(documents: Sequence[Document]) -> Iterator[FieldError]:
    """Errors across documents: names used twice, priority classes that none defines."""
    counts = Counter((d.kind, d.name) for d in documents)
    seen: set[tuple[str, str]] = set()
    for document in documents:
        identity = (document.kind, document.name)
        if counts[identity] > 1 and identity in seen:
            problem = f"{document.kind} {document.name} is defined twice"
            yield document.field_error(("metadata", "name"), problem, "use unique names")
        seen.add(identity)
    yield from _check_pod_names(documents)
    known = [CORE_CLASS, *(d.name for d in documents if d.kind == "PriorityClass")]
    for document in documents:
        yield from _check_class_names(document, known)
    clusters = [d for d in documents if d.kind == "LocalCluster"]
    for extra in clusters[1:]:
        yield extra.field_error(("kind",), "is a second LocalCluster", "keep one")
    defaults = [d for d in documents if d.kind == "PriorityClass" and d.content.get("globalDefault") is True]
    for extra in defaults[1:]:
        yield extra.field_error(
            ("globalDefault",), f"{defaults[0].name} already has globalDefault", "only one class may have it"
        )


def _check_pod_names(documents: Sequence[Document]) -> Iterator[FieldError]:
    """Errors of Deployments whose pods (OWNER-N) would have the names of a job's (JOB-ROLE-N)."""
    jobs = {d.name for d in documents if d.kind == "TrainingJob"}
    for document in documents:
        job, _, role = document.name.rpartition("-")
        if document.kind == "Deployment" and job in jobs and role in _ROLES:
            problem = f"its pod {document.name}-0 would have the name of a pod of TrainingJob {job}"
            yield document.field_error(("metadata", "name"), problem, "choose another name")


def _check_sizes(document: Document, role: str) -> Iterator[FieldError]:
    low, high = _integer(document, "spec", role, "minReplicas"), _integer(document, "spec", role, "maxReplicas")
    if low is not None and high is not None and low > high:
        problem = f"{low} is larger than maxReplicas {high}"
        yield document.field_error(("spec", role, "minReplicas"), problem, "raise maxReplicas or lower minReplicas")


def _check_server_sizes(document: Document) -> Iterator[FieldError]:
    role = ("spec", "parameterServer")
    low, pinned, copies = (_integer(document, *role, name) for name in ("minReplicas", "replicas", "copies"))
    high = _integer(document, *role, "maxReplicas") or low  # without a maximum the minimum is their number
    if high is None:
        return
    if low is not None and pinned and low <= high and not low <= pinned <= high:
        problem = f"{pinned} is not an allowed number of servers"
        yield document.field_error((*role, "replicas"), problem, f"{low} to {high}, or 0 for EDL's choice")
    if copies is not None and 1 <= high < copies <= MOST_COPIES:
        yield document.field_error((*role, "copies"), *too_many_copies(copies, high))


def _check_allowed_sizes(document: Document) -> Iterator[FieldError]:
    spec = value_at(document.content, ("spec", "trainer"))
    if not isinstance(spec, Mapping):
        return
    if spec.get("powersOfTwo") is True and "step" in spec:
        yield document.field_error(
            ("spec", "trainer", "step"), "cannot be combined with powersOfTwo", "remove one of the two"
        )
    low, high, pinned, step, per_node = (
        _integer(document, "spec", "trainer", name)
        for name in ("minReplicas", "maxReplicas", "replicas", "step", "perNode")
    )
    per_node = per_node or 1
    doubles = spec.get("powersOfTwo") is True
    listed = _listed_sizes(document)
    if listed and (doubles or step not in {None, 1}):
        name, (problem, hint) = ("sizes", SIZES_BESIDE_POWERS) if doubles else ("step", STEP_BESIDE_SIZES)
        yield document.field_error(("spec", "trainer", name), problem, hint)
        return
    step = 1 if doubles or listed else per_node if step is None else step
    if low is None or high is None or not 1 <= low <= high or step < 1 or per_node < 1:
        return
    if doubles and not is_power_of_two(low):
        yield document.field_error(
            ("spec", "trainer", "minReplicas"), f"{low} is not a power of two", "1, 2, 4, 8, ..."
        )
        return
    by_step = 0 if doubles or listed else step
    broken = [name for name, size in (("minReplicas", low), ("step", by_step)) if size % per_node]
    for name in broken:
        hint = f"trainers are placed {per_node} to a node: use {per_node}, {2 * per_node}, ..."
        yield document.field_error(("spec", "trainer", name), f"is not a multiple of perNode {per_node}", hint)
    if listed and (wrong := find_size_problem(listed, low, high, per_node)):
        yield document.field_error(("spec", "trainer", "sizes"), *wrong)
        return
    if broken:
        return
    sizes = TrainerSpec(
        shape=Shape(requests=NOTHING),
        min_replicas=low,
        max_replicas=high,
        step=step,
        powers_of_two=doubles,
        sizes=listed,
        per_node=per_node,
    )
    if pinned and not sizes.is_allowed(pinned):
        yield document.field_error(
            ("spec", "trainer", "replicas"), f"{pinned} is not an allowed size", f"{sizes.sizes_text}, or 0"
        )


def _listed_sizes(document: Document) -> tuple[int, ...]:
    """The list `spec.trainer.sizes`; empty if there is none, or none of whole numbers."""
    items = value_at(document.content, ("spec", "trainer", "sizes"))
    if not isinstance(items, list):
        return ()
    found = [_integer(document, "spec", "trainer", "sizes", index) for index in range(len(items))]
    numbers = tuple(number for number in found if number is not None)
    return numbers if len(numbers) == len(items) else ()


def _check_group(document: Document) -> Iterator[FieldError]:
    spec = value_at(document.content, ("spec",))
    if not isinstance(spec, Mapping):
        return
    group = spec.get("group")
    if not isinstance(group, Mapping):
        return
    if spec.get("parameterServer") is not None:
        yield document.field_error(("spec", "group"), *GROUP_BESIDE_SERVERS)
    if group.get("shares") == GroupShares.MEASURED and _integer(document, "spec", "trainer", "maxReplicas") == 1:
        yield document.field_error(("spec", "group", "shares"), *MEASURED_ALONE)


def _check_roles(document: Document) -> Iterator[FieldError]:
    yield from _check_command(document, ("spec", "trainer", "template"))
    for template in template_paths("TrainingJob"):
        if value_at(document.content, template) is None:
            continue
        if template[1] != "master":
            yield from _check_requests(document, template)
        path = (*template, "spec", "priorityClassName")
        if value_at(document.content, path) is not None:
            yield document.field_error(
                path, "EDL gives each pod its class", "set spec.priorityClassName of the job instead"
            )


def _check_command(document: Document, template: Sequence[PathStep]) -> Iterator[FieldError]:
    path = (*template, "spec", "containers", 0)
    container = value_at(document.content, path)
    if isinstance(container, Mapping) and not container.get("command") and not container.get("args"):
        hint = 'add command: ["python", "train.py"]; a local run starts a process, not the image'
        yield document.field_error((*path, "command"), "is missing", hint)
    elif value_at(container, ("command", 0)) == "":
        yield document.field_error((*path, "command", 0), "is empty", "name the program to run")


def _check_requests(document: Document, template: Sequence[PathStep]) -> Iterator[FieldError]:
    path = (*template, "spec", "containers", 0)
    container = value_at(document.content, path)
    if not isinstance(container, Mapping):
        return
    requests = value_at(container, ("resources", "requests")) or {}
    limits = value_at(container, ("resources", "limits")) or {}
    if not isinstance(requests, Mapping) or not isinstance(limits, Mapping):
        return
    for name in ("cpu", "memory"):
        if requests.get(name, limits.get(name)) is None:
            yield document.field_error((*path, "resources", "requests", name), "is missing", _REQUESTS_HINT)


def _check_class(document: Document) -> Iterator[FieldError]:
    if document.name.startswith("edl-"):
        hint = f"{CORE_CLASS} and the edl-surplus classes are built in; choose another name"
        yield document.field_error(("metadata", "name"), f"{document.name} belongs to EDL", hint)
    value = _integer(document, "value")
    if value is not None and value < 0:
        problem = f"{value} is not above surplus, whose classes have the values -1 to -8"
        yield document.field_error(("value",), problem, "0 or more; edl-core has 0")


def _check_class_names(document: Document, known: Sequence[str]) -> Iterator[FieldError]:
    paths: list[tuple[PathStep, ...]] = []
    if document.kind == "TrainingJob":
        paths = [("spec", "priorityClassName")]
    elif document.kind == "Deployment":
        paths = [("spec", "template", "spec", "priorityClassName")]
    for path in paths:
        name = value_at(document.content, path)
        if isinstance(name, str) and name not in known:
            hint = f"{did_you_mean(name, known)}; or add a PriorityClass document to the files"
            yield document.field_error(path, f"there is no priority class {name}", hint)


def _integer(document: Document, *path: PathStep) -> int | None:
    value = value_at(document.content, path)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # the schema accepts it
    return value if isinstance(value, int) and not isinstance(value, bool) else None
