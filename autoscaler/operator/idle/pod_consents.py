"""Consent to each pod's GPUs being given back, by the caches and, before a deed, by the API server itself.

What is ignored is told: at the pod for what it or its owner says, at the Namespace for its default, each once until
it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Api
from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, PODS
from autoscaler.clusters.kubernetes.objects.fields import Raw, text
from autoscaler.clusters.kubernetes.objects.labels import IDLE_RECLAIM
from autoscaler.operator.idle.consent import (
    NO_CONSENT,
    Consent,
    namespace_problem,
    owner_of,
    read_consent,
    rests_on_namespace,
    scaler_of,
    selects,
)
from autoscaler.operator.store.consent_objects import ConsentObjects
from autoscaler.operator.store.event_recorder import EventRecorder, JobEvent, ObjectSubject

IGNORED: Final = "IdleReclaimIgnored"
MOST_TOLD: Final = 10_000  # problems that are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRead:
    """Consent as the API server has it; `version`: of the pod that gives it, so that a later veto makes another one."""

    consent: Consent
    version: str


class PodConsents:
    """Consents of one term."""

    def __init__(self, api: Api, objects: ConsentObjects, events: EventRecorder) -> None:
        self._api, self._objects, self._events = api, objects, events
        self._told: dict[str, str] = {}  # problem, by UID

    def of(self, pod: Raw) -> Consent:
        """Return what holds for the pod by what has been watched; tell what is ignored.

        Until everything has been listed nothing is told: an owner that is not there yet is no fault of the pod's.
        """
        namespace = text(pod, "metadata", "namespace")
        if not self._objects.may_write_in(namespace):
            return NO_CONSENT
        owner, found = owner_of(pod), self._objects.namespace(namespace)
        workload = None if owner is None else self._objects.workload(owner.kind, namespace, owner.name)
        scaler = "" if owner is None else self._objects.scaler(owner.kind, namespace, owner.name)
        consent = read_consent(pod, workload, found, scaler=scaler)
        if not self._objects.is_synced:
            return consent
        self._tell("Pod", pod, consent.problem)
        if found is not None:
            self._tell("Namespace", found, namespace_problem(found))
        return consent

    def renew(self) -> None:
        """Look at the HorizontalPodAutoscalers anew."""
        self._objects.renew_scalers()

    async def read_now(self, pod: Raw) -> ConsentRead:
        """Return what holds for this very pod now: a watch may be late, and a veto counts at once.

        The pod, which has the veto, is read last: everything else may take its time.  Raises ClusterError if something
        that matters cannot be read.
        """
        name, namespace, owner = text(pod, "metadata", "name"), text(pod, "metadata", "namespace"), owner_of(pod)
        workload = None if owner is None else await self._objects.read_workload(owner.kind, namespace, owner.name)
        scaler = "" if owner is None else scaler_of(owner, await self._objects.read_scalers(namespace))
        is_default = rests_on_namespace(pod, workload)
        default = await self._objects.read_namespace(namespace) if is_default else None
        live = await self._api.get(PODS, name, namespace=namespace)
        version = text(live, "metadata", "resourceVersion")
        return ConsentRead(consent=_judge(pod, live, workload, default, scaler), version=version)

    def _tell(self, kind: str, raw: Raw, problem: str) -> None:
        uid = text(raw, "metadata", "uid")
        if not problem:
            self._told.pop(uid, None)
            return
        if self._told.get(uid) == problem:
            return
        self._told[uid] = problem
        while len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        name = text(raw, "metadata", "name")
        namespace = name if kind == "Namespace" else text(raw, "metadata", "namespace")  # where its readers look
        subject = ObjectSubject(kind=kind, name=name, namespace=namespace, uid=uid)
        self._events.emit(subject, JobEvent(reason=IGNORED, message=problem, is_warning=True))


def _judge(pod: Raw, live: Raw, workload: Raw | None, default: Raw | None, scaler: str) -> Consent:
    """Return the consent of the pod as it is now; none if that is another one, or leaves already."""
    if text(live, "metadata", "uid") != text(pod, "metadata", "uid") or text(live, "metadata", "deletionTimestamp"):
        return NO_CONSENT
    owner = owner_of(pod)
    if owner is not None and owner.kind == DEPLOYMENTS and workload is not None and not selects(workload, live):
        return Consent(problem=f"{IDLE_RECLAIM} is ignored: Deployment {owner.name} does not select it by labels")
    if default is None and rests_on_namespace(live, workload):
        return NO_CONSENT  # it has just lost its own word: the watch will show that
    return read_consent(live, workload, default, scaler=scaler)
