"""Consent to take back GPUs that a pod of others holds unused: annotations of the pod, of its owner, of its namespace.

The nearest one that says something counts, `off` included: the pod's, else that of its Deployment or StatefulSet, else
that of its Namespace.  Doubt is no consent: a value that is not understood, an owner that cannot be read or may be
another of that name, one that somebody else scales, a controller that would create the pod again.
Pure; `consent_objects` watches the objects, `idle_reclaimer` acts (ADR 0288, 0260, 0293).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, STATEFUL_SETS, Kind
from autoscaler.clusters.kubernetes.objects.fields import (
    LONGEST_VALUE,
    Raw,
    controller_of,
    created_at_s,
    part,
    short_text,
    text,
    unix_s,
)
from autoscaler.clusters.kubernetes.objects.labels import IDLE_MINIMUM, IDLE_RECLAIM, KEEP_UNTIL
from autoscaler.domain.idleness import LONGEST_RECLAIM_S, SHORTEST_RECLAIM_S, StayReason
from autoscaler.operator.idle.owner_replicas import AtMinimumError, OwnerReplicas, loses_volumes, replicas_of
from autoscaler.quantities import parse_duration_s

OFF: Final = "off"
MOST_REPLICAS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """Consent to one pod's GPUs being given back.  `problem`: of what the pod or its owner says; empty: of nothing.

    `replicas`: of the Deployment or StatefulSet that may be scaled by one; None: it has no controller, and is evicted.
    `stays`: why the pod stays although its owner agreed.
    """

    after_s: float | None = None
    replicas: OwnerReplicas | None = None
    kept_until_unix_s: float = -inf
    problem: str = ""
    stays: StayReason | None = None

    def holds_at(self, now_unix_s: float, *, idle_since_unix_s: float) -> bool:
        """True if the owner agreed, the pod has been idle for as long as that asks, and nobody keeps it."""
        if self.problem or self.after_s is None:
            return False
        return max(idle_since_unix_s + self.after_s, self.kept_until_unix_s) <= now_unix_s


NO_CONSENT: Final = Consent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Deployment or StatefulSet whose scale decides whether a pod exists."""

    kind: Kind
    name: str


def owner_of(raw: Raw) -> Owner | None:
    """Return the Deployment or StatefulSet of a pod; None without a controller and for other ones."""
    ref = controller_of(raw)
    name = text(ref, "name")
    if text(ref, "kind") == "StatefulSet":
        return Owner(kind=STATEFUL_SETS, name=name)
    revision = text(raw, "metadata", "labels", "pod-template-hash")
    if text(ref, "kind") == "ReplicaSet" and revision and name.endswith(f"-{revision}"):
        return Owner(kind=DEPLOYMENTS, name=name.removesuffix(f"-{revision}"))
    return None


def scaler_of(owner: Owner | None, scalers: Iterable[Raw]) -> str:
    """Return the name of a HorizontalPodAutoscaler of the owner's namespace that scales it; empty: none does (A10).

    The target's `apiVersion` is not compared: every version and former group of these kinds is the same object.
    """
    if owner is None:
        return ""
    wanted = (owner.kind.kind, owner.name)
    targets = ((part(raw, "spec", "scaleTargetRef"), text(raw, "metadata", "name")) for raw in scalers)
    return next((name for target, name in targets if (text(target, "kind"), text(target, "name")) == wanted), "")


def selects(deployment: Raw, pod: Raw) -> bool:
    """True if the whole Deployment's selector has labels alone, and the whole pod has each of them."""
    selector, labels = part(deployment, "spec", "selector"), part(pod, "metadata", "labels")
    wanted = part(selector, "matchLabels")
    return bool(wanted) and not selector.get("matchExpressions") and wanted.items() <= labels.items()


def read_consent(pod: Raw, owner: Raw | None, namespace: Raw | None, *, scaler: str = "") -> Consent:
    """Return what holds for a pod.

    `owner`: the Deployment or StatefulSet of its owner's name; None: it has none, or cannot be read.  `scaler`: the
    HorizontalPodAutoscaler of that owner, if it has one.
    """
    own, theirs = _annotations(pod), {} if owner is None else _annotations(owner)
    kept = own.get(KEEP_UNTIL)
    kept_until_s = -inf if kept is None else unix_s(short_text(kept))
    if kept_until_s is None:
        shown = _shown(kept)
        return Consent(problem=f"{KEEP_UNTIL}: {shown} is no time, such as 2030-01-31T12:00:00Z; the pod is kept")
    near = own | {name: value for name, value in theirs.items() if name not in own}
    merged = near | {name: value for name, value in _defaults_of(namespace).items() if name not in near}
    try:
        after_s, minimum = _parse_after(merged), _parse_minimum(merged)
        is_owned = after_s is not None and bool(controller_of(pod))
        replicas = _check_scalable(pod, owner, minimum, scaler) if is_owned else None
    except AtMinimumError:
        return Consent(kept_until_unix_s=kept_until_s, stays=StayReason.MINIMUM)
    except ValueError as error:
        asked = IDLE_RECLAIM in near or IDLE_MINIMUM in near
        return Consent(kept_until_unix_s=kept_until_s, problem=str(error) if asked else "")
    return Consent(after_s=after_s, replicas=replicas, kept_until_unix_s=kept_until_s)


def rests_on_namespace(pod: Raw, owner: Raw | None) -> bool:
    """True if pod and owner leave something to the namespace's default."""
    near = _annotations(pod) | ({} if owner is None else _annotations(owner))
    return IDLE_RECLAIM not in near or (IDLE_MINIMUM not in near and bool(controller_of(pod)))


def namespace_problem(namespace: Raw) -> str:
    """Return what is wrong with a namespace's default, which is then ignored; empty: nothing."""
    annotations = _annotations(namespace)
    try:
        _parse_after(annotations)
        _parse_minimum(annotations)
    except ValueError as error:
        return str(error)
    return ""


def _defaults_of(namespace: Raw | None) -> Raw:
    """The namespace's annotations; nothing if one of them is not understood."""
    if namespace is None or namespace_problem(namespace):
        return {}
    return {name: value for name, value in _annotations(namespace).items() if name != KEEP_UNTIL}


def _annotations(raw: Raw) -> dict[str, object]:
    found = part(raw, "metadata", "annotations")
    return {name: found[name] for name in (IDLE_RECLAIM, IDLE_MINIMUM, KEEP_UNTIL) if name in found}


def _parse_after(annotations: Raw) -> float | None:
    """Seconds without use; None: no consent.  Raises ValueError."""
    wanted = annotations.get(IDLE_RECLAIM)
    if wanted is None or short_text(wanted).lower() == OFF:
        return None
    try:
        after_s = parse_duration_s(short_text(wanted))
    except ValueError:
        raise ValueError(
            f"{IDLE_RECLAIM} is ignored: {_shown(wanted)} is no duration, such as 30m, and not {OFF}"
        ) from None
    if not SHORTEST_RECLAIM_S <= after_s <= LONGEST_RECLAIM_S:
        raise ValueError(f"{IDLE_RECLAIM} is ignored: {_shown(wanted)} is not between 1m and 720h")
    return after_s


def _parse_minimum(annotations: Raw) -> int | None:
    """Replicas that stay; None: not declared.  Raises ValueError."""
    wanted = annotations.get(IDLE_MINIMUM)
    if wanted is None:
        return None
    written = short_text(wanted)
    if not (written.isascii() and written.isdigit() and int(written) <= MOST_REPLICAS):
        problem = f"{IDLE_MINIMUM}: {_shown(wanted)} is no number of replicas, 0 to {MOST_REPLICAS}"
        raise ValueError(f"{IDLE_RECLAIM} is ignored: {problem}")
    return int(written)


def _check_scalable(pod: Raw, owner: Raw | None, minimum: int | None, scaler: str) -> OwnerReplicas:
    """Return what the pod's owner wants.

    Raises ValueError if the pod would come back, if its replicas are somebody else's, or if nobody can tell.
    """
    kind, found = text(controller_of(pod), "kind")[:LONGEST_VALUE], owner_of(pod)
    if found is None:
        raise ValueError(f"{IDLE_RECLAIM} is ignored: its {kind} would create the pod again, and is not scaled")
    if minimum is None:
        hint = f'{IDLE_MINIMUM}: "0" lets EDL scale it'
        raise ValueError(f"{IDLE_RECLAIM} is ignored: its {kind} would create the pod again; {hint}")
    if owner is None:
        raise ValueError(f"{IDLE_RECLAIM} is ignored: its {found.kind.kind} {found.name} cannot be read")
    if not _may_have_made(owner, found, pod):
        raise ValueError(f"{IDLE_RECLAIM} is ignored: {found.kind.kind} {found.name} is not the one that made it")
    if scaler:
        whose = f"HorizontalPodAutoscaler {scaler}"[: 2 * LONGEST_VALUE]
        raise ValueError(f"{IDLE_RECLAIM} is ignored: the replicas of its {found.kind.kind} are scaled by {whose}")
    if above := controller_of(owner):
        whose = f"{text(above, 'kind')} {text(above, 'name')}"[: 2 * LONGEST_VALUE]
        raise ValueError(f"{IDLE_RECLAIM} is ignored: its {found.kind.kind} is scaled by {whose}")
    if loses_volumes(owner):
        raise ValueError(f"{IDLE_RECLAIM} is ignored: its {found.kind.kind} deletes volumes when it is scaled")
    try:
        return replicas_of(found.kind, owner, pod, minimum)
    except AtMinimumError:
        raise
    except ValueError as error:
        raise ValueError(f"{IDLE_RECLAIM} is ignored: {error}") from None


def _may_have_made(owner: Raw, found: Owner, pod: Raw) -> bool:
    """True if it is the pod's StatefulSet by UID, or a Deployment, whose UID no pod tells, not younger than the pod."""
    if found.kind == STATEFUL_SETS:
        return text(controller_of(pod), "uid") == text(owner, "metadata", "uid")
    return created_at_s(owner) <= created_at_s(pod)


def _shown(value: object) -> str:
    return ascii(str(value)[:LONGEST_VALUE])
