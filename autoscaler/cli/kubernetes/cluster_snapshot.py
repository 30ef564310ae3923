"""Snapshot of a cluster for the planner, made of one listing of each kind, and of a file submitted to it.

Objects are parsed as the operator parses them (`clusters.kubernetes.cluster_view`), and a job's state is restored as by
an operator that has just become leader, with what the running one wrote of throughput and of trainers that do no work.
Its windows and pauses, and the nodes that a job avoids, are unknown here; notes say so.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.api_errors import NO_DEFINITION
from autoscaler.cli.place_values import PlannedSubmission
from autoscaler.clusters.kubernetes.api.api_port import Api, Listing, Raw, Scope
from autoscaler.clusters.kubernetes.api.errors import ForbiddenError, NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODE_GPUS,
    POD_AUTOSCALERS,
    PODS,
    PRIORITY_CLASSES,
    STATEFUL_SETS,
    TRAINING_JOBS,
    Kind,
)
from autoscaler.clusters.kubernetes.cache.expectations import Expectations
from autoscaler.clusters.kubernetes.cache.object_cache import AGED_KINDS, WATCHED_KINDS, Key, ObjectCache, key_of
from autoscaler.clusters.kubernetes.cluster_view import JobRuntime, ViewBuilder
from autoscaler.clusters.kubernetes.objects.fields import part, text
from autoscaler.clusters.kubernetes.objects.names import master_name, split_key
from autoscaler.clusters.kubernetes.parsing.deployment_objects import parse_workload
from autoscaler.clusters.kubernetes.parsing.node_gpus import report_of, trim_node_gpus
from autoscaler.clusters.kubernetes.parsing.priority_classes import (
    PriorityClasses,
    find_class_problems,
    find_rank_problem,
)
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob, parse_job, to_planner_job
from autoscaler.domain import ClusterView, IdlePod, Job, JobState, PodName, Policy, Reclaim, Workload
from autoscaler.domain.gpu_reports import NO_REPORTS
from autoscaler.errors import ClusterError, InvalidSpecError
from autoscaler.fault_isolation import JobErrors
from autoscaler.gpus.pod_uses import GpuUses
from autoscaler.manifests.api_types import Mode
from autoscaler.manifests.documents import read_documents
from autoscaler.operator.idle.consent import Consent, owner_of, read_consent, scaler_of
from autoscaler.operator.idle.gpu_use import idle_pods_of
from autoscaler.operator.job.job_pods import own_pods, roles_of
from autoscaler.operator.job.progress_status import facts_in_status
from autoscaler.operator.job.recovery import FoundJob
from autoscaler.operator.process.policy_file import (
    ELASTIC_SERVERS_KEY,
    MOVE_SERVERS_KEY,
    POLICY,
    POLICY_KEY,
    POLICY_LABELS,
    parse_policy,
)
from autoscaler.snapshots import SnapshotContent
from autoscaler.views.jobs.remaining_time import work_of

PLANNER_ROLE: Final = "edl-planner-view"  # a ClusterRole of the chart, without a binding
NEEDS_ROLE: Final = (
    "a plan needs the capacity of the whole cluster: ask its administrator for the chart's ClusterRole "
    f"(kubectl create clusterrolebinding NAME --clusterrole={PLANNER_ROLE} --user=YOU)"
)
NO_HISTORY: Final = "the operator's windows and pauses cannot be read here and count as over"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSetup:
    """The operator's policy, what it may do with parameter servers, and `note`, which says where both come from.

    Without a readable ConfigMap of the chart they are the defaults: of `parse_policy`, and of the chart.
    """

    note: str
    is_known: bool = False  # the policy is the operator's
    policy: Policy = field(default_factory=lambda: parse_policy({}))
    elastic_servers: bool = True
    moves_servers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """A snapshot, and for people `origin`: whose policy and history it has; `omissions`: objects that it lacks.

    `classes`: the priority classes of the cluster.
    """

    snapshot: SnapshotContent
    origin: tuple[str, ...]
    omissions: tuple[str, ...]
    classes: PriorityClasses


async def read_cluster_snapshot(
    api: Api, *, title: str, now_s: float, policy: tuple[str, str] | None = None
) -> ClusterSnapshot:
    """The snapshot at `now_s` (Unix time, the cluster's clock here).  Raises ClusterError and CommandError.

    `policy`: namespace and name of the ConfigMap with the operator's policy; None: it is looked for.
    """
    listings, notes = await _list_all(api)
    setup = await find_setup(api, policy)
    store, views, view = await asyncio.to_thread(_make_view, listings, setup, now_s)  # seconds, in a large cluster
    view = view.evolve(idle_pods=await _list_idle_pods(api, view, store, now_s))
    wrong = [f"tj/{name} is left out: {error}" for name, error in views.jobs.invalid.items()]
    wrong += [f"tj/{name} gets no pods: {why}" for name, why in views.jobs.refused.items()]
    if (reclaim := _checks_classes_of(listings, setup)) is not None:
        wrong += [f"no job gets pods: {why}" for why in find_class_problems(views.classes, reclaim)]
    observed = (job.key for job in views.jobs.known.values() if job.spec.mode is Mode.OBSERVE)
    wrong += [f"tj/{name} is only observed, and planned here as if EDL resized it" for name in observed]
    made_by = f"{title}; {NO_HISTORY}; {setup.note}"
    snapshot = SnapshotContent(made_by=made_by, now_s=now_s, policy=setup.policy, view=view)
    return ClusterSnapshot(
        snapshot=snapshot, origin=(NO_HISTORY, setup.note), omissions=(*notes, *wrong), classes=views.classes
    )


def _make_view(
    listings: Mapping[Kind, Listing], setup: OperatorSetup, now_s: float
) -> tuple[ObjectCache, ViewBuilder, ClusterView]:
    errors = JobErrors(lambda: now_s)
    store, held_under = ObjectCache(errors), _checks_classes_of(listings, setup)
    for kind, listing in listings.items():
        store.apply_listing(kind, listing, requested_at_s=now_s)
    views = ViewBuilder(
        store,
        reclaim=setup.policy.reclaim,
        offset_s=0.0,
        runtime_of=lambda job: _facts_of(job, store, views, now_s, held_under),
        expected=Expectations,
        errors=errors,
        elastic_servers=setup.elastic_servers,
        moves_servers=setup.moves_servers,
    )
    return store, views, views.build(now_s)


def _checks_classes_of(listings: Mapping[Kind, Listing], setup: OperatorSetup) -> Reclaim | None:
    """The mode whose PriorityClasses the operator asks for before it creates anything; None: not known here."""
    return setup.policy.reclaim if setup.is_known and listings[PRIORITY_CLASSES].items else None


async def _list_idle_pods(api: Api, view: ClusterView, store: ObjectCache, now_s: float) -> tuple[IdlePod, ...]:
    """Pods of others that hold GPUs and do not use them; none where no agents report, or one may not read it."""
    try:
        listing = await api.list(NODE_GPUS)
    except ClusterError:
        return ()
    found = (report_of(trim_node_gpus(raw)) for raw in listing.items)
    reports = NO_REPORTS.changed(report for report in found if report is not None)

    namespaces, sets = await _list_if_allowed(api, NAMESPACES), await _list_if_allowed(api, STATEFUL_SETS)

    def consent_of(name: PodName) -> Consent:
        pod = store.get(PODS, split_key(name)) or {}
        owner, namespace = owner_of(pod), text(pod, "metadata", "namespace")
        key = None if owner is None else (namespace, owner.name)
        is_set = owner is not None and owner.kind == STATEFUL_SETS
        workload = None if key is None else sets.get(key) if is_set else store.get(DEPLOYMENTS, key)
        scalers = (raw for key, raw in store.objects(POD_AUTOSCALERS).items() if key[0] == namespace)
        return read_consent(pod, workload, namespaces.get(("", namespace)), scaler=scaler_of(owner, scalers))

    return idle_pods_of(view.pods, GpuUses(reports), now_s, offset_s=0.0, consent_of=consent_of)


async def _list_if_allowed(api: Api, kind: Kind) -> Mapping[Key, Raw]:
    """Objects of a kind by namespace and name; none where one may not list it, whose consent is then not known."""
    try:
        return {key_of(raw): raw for raw in (await api.list(kind)).items}
    except ClusterError:
        return {}


async def find_setup(api: Api, named: tuple[str, str] | None = None) -> OperatorSetup:
    """The operator's policy and its switches for servers, or the defaults, and a note on where they come from.

    `named`: namespace and name of the ConfigMap; None: it is looked for.
    """
    try:
        found = await _policies(api) if named is None else await _named_policy(api, *named)
    except ClusterError as error:
        return OperatorSetup(note=f"the default policy is used: the operator's cannot be read ({error})")
    if not found:
        return OperatorSetup(note="the default policy is used: no ConfigMap of the chart holds one")
    raw = found[0]
    where = f"ConfigMap {text(raw, 'metadata', 'namespace')}/{text(raw, 'metadata', 'name')}"
    try:
        policy = parse_policy(_load(text(raw, "data", POLICY_KEY)))
    except InvalidSpecError as error:
        return OperatorSetup(note=f"the default policy is used: in {where} {error}")
    return OperatorSetup(
        note=f"the policy is that of {where}",
        is_known=True,
        policy=policy,
        elastic_servers=text(raw, "data", ELASTIC_SERVERS_KEY) != "false",
        moves_servers=text(raw, "data", MOVE_SERVERS_KEY) == "true",
    )


async def _policies(api: Api) -> list[Raw]:
    """ConfigMaps of the chart with a policy: of all namespaces, or else the default release's."""
    try:
        items = (await api.list(CONFIG_MAPS, Scope(labels=POLICY_LABELS))).items
    except ForbiddenError:
        return await _named_policy(api, *POLICY)
    return [raw for raw in items if text(raw, "data", POLICY_KEY)]


async def _named_policy(api: Api, namespace: str, name: str) -> list[Raw]:
    raw = await api.get(CONFIG_MAPS, name, namespace=namespace)
    return [raw] if text(raw, "data", POLICY_KEY) else []


def _load(written: str) -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415 - only here

    try:
        content = yaml.safe_load(written)
    except yaml.YAMLError as error:
        raise InvalidSpecError(POLICY_KEY, f"is not YAML: {error}") from None
    if not isinstance(content, Mapping):
        raise InvalidSpecError(POLICY_KEY, "holds no fields")
    return content


async def _list_all(api: Api) -> tuple[dict[Kind, Listing], list[str]]:
    """Listings of every kind that a view needs; an empty one with a note for rarer kinds that the user may not list."""
    answers = dict(
        zip(WATCHED_KINDS, await asyncio.gather(*map(api.list, WATCHED_KINDS), return_exceptions=True), strict=True)
    )
    if refused := [str(answers[kind]) for kind in AGED_KINDS if isinstance(answers[kind], ForbiddenError)]:
        raise CommandError(Exit.REFUSED, f"{'; '.join(refused)}; {NEEDS_ROLE}")
    found: dict[Kind, Listing] = {}
    notes: list[str] = []
    for kind, answer in answers.items():
        if isinstance(answer, NotFoundError) and kind == TRAINING_JOBS:
            raise CommandError(Exit.NOT_FOUND, NO_DEFINITION)
        if isinstance(answer, ForbiddenError):
            notes.append(f"{kind.plural} may not be seen and are left out: {answer}")
            found[kind] = Listing(items=(), resource_version="1")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[kind] = answer
    return found, notes


def _facts_of(
    job: KubeJob, store: ObjectCache, views: ViewBuilder, now_s: float, held_under: Reclaim | None
) -> JobRuntime:
    """What the operator plans with, as far as the job's status tells.  `held_under`: see `_checks_classes_of`."""
    is_held = held_under is not None and bool(
        find_class_problems(views.classes, held_under)
        or find_rank_problem(views.classes, job.spec.priority_class, held_under)
    )
    raw = store.get(TRAINING_JOBS, (job.namespace, job.name)) or {}
    pods = own_pods(job, views.pods.of_job(job.key))
    has_master = store.get(DEPLOYMENTS, (job.namespace, master_name(job.name))) is not None
    found = FoundJob(status=part(raw, "status"), pods=pods, roles=roles_of(pods, has_master=has_master))
    facts = facts_in_status(job, found, now_s, is_held=is_held)
    state = JobState.OVER if job.is_deleting else facts.state
    return replace(facts, state=state, remaining_work=work_of(raw))


# ---- submission -----------------------------------------------------------------------------------------------------


def read_cluster_submission(file: Path, *, namespace: str, classes: PriorityClasses, now_s: float) -> PlannedSubmission:
    """The file's TrainingJobs and Deployments, in `namespace` where they name none.  Raises CommandError."""
    documents, refusals = read_documents(file)
    if refusals:
        first = refusals[0]
        raise CommandError(Exit.REFUSED, f"{file}:{first.line}: {first.problem} ({first.hint})")
    jobs: list[Job] = []
    workloads: list[Workload] = []
    for document in documents:
        raw: dict[str, Any] = copy.deepcopy(dict(document.content))
        raw["metadata"] = {"namespace": namespace, **(raw.get("metadata") or {})}
        match raw.get("kind"):
            case "TrainingJob":
                jobs.append(_job(file, raw, classes, now_s))
            case "Deployment":
                if (workload := parse_workload(raw, None, classes)) is not None:
                    workloads.append(workload)
            case _:
                pass  # Services and the like request nothing
    if not jobs and not workloads:
        raise CommandError(Exit.REFUSED, f"{file} holds no TrainingJob and no Deployment: there is nothing to submit")
    return PlannedSubmission(jobs=tuple(jobs), workloads=tuple(workloads))


def _job(file: Path, raw: dict[str, Any], classes: PriorityClasses, now_s: float) -> Job:
    try:
        job = parse_job(raw)
    except InvalidSpecError as error:
        raise CommandError(Exit.REFUSED, f"{file}: {error}") from None
    priority = classes.value_of(job.spec.priority_class)
    if priority is None:
        known = ", ".join(sorted(classes.by_name)) or "none"
        problem = f"spec.priorityClassName: there is no class {job.spec.priority_class}; the cluster has {known}"
        raise CommandError(Exit.REFUSED, f"{file}: {problem}")
    return to_planner_job(job, priority=priority, offset_s=now_s)
