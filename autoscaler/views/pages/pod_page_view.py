"""One pod with what people ask of it before its GPUs are given back: until when it is kept, and what it was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.clusters.kubernetes.objects.fields import LONGEST_VALUE, Raw, part, short_text, text, unix_s
from autoscaler.clusters.kubernetes.objects.labels import KEEP_UNTIL
from autoscaler.domain import Role
from autoscaler.views.cluster.pod_view import PodView, all_pods
from autoscaler.views.documents import ClusterDocuments
from autoscaler.views.history.journal import JournalLine, journal_of_pod

_LINES: Final = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPageView:
    """`kept_until_s`: instant until which somebody keeps it, Unix time; None: nobody does, or `keep_problem` says why
    that instant is not known, and then the pod is kept.  `can_be_kept`: it is a pod of others, and holds GPUs.
    """

    pod: PodView
    uid: str
    can_be_kept: bool
    kept_until_s: float | None
    keep_problem: str
    lines: tuple[JournalLine, ...]

    def is_kept_at(self, now_s: float) -> bool:
        """True if its GPUs are not given back at that instant."""
        return bool(self.keep_problem) or (self.kept_until_s is not None and now_s < self.kept_until_s)


def pod_page_view(
    documents: ClusterDocuments, journal: tuple[JournalLine, ...], namespace: str, name: str
) -> PodPageView | None:
    """Return the pod; None if there is none of this name, or it has ended."""
    pod = next((one for one in all_pods(documents) if (one.namespace, one.name) == (namespace, name)), None)
    raw = find_pod(documents, namespace, name)
    if pod is None or raw is None:
        return None
    written = part(raw, "metadata", "annotations").get(KEEP_UNTIL)
    kept_until_s = None if written is None else unix_s(short_text(written))
    is_odd = written is not None and kept_until_s is None
    return PodPageView(
        pod=pod,
        uid=text(raw, "metadata", "uid"),
        can_be_kept=pod.role is Role.EXTERNAL and pod.requests.gpu_count > 0,
        kept_until_s=kept_until_s,
        keep_problem=f"{KEEP_UNTIL}: {str(written)[:LONGEST_VALUE]!a} is no time; the pod is kept" if is_odd else "",
        lines=journal_of_pod(journal, namespace, name, most=_LINES),
    )


def find_pod(documents: ClusterDocuments, namespace: str, name: str) -> Raw | None:
    """Return the pod as the API server has it; None if there is none of this name."""
    for raw in documents.pods:
        if text(raw, "metadata", "name") == name and text(raw, "metadata", "namespace") == namespace:
            return raw
    return None
