"""The one annotation by which a pod of others keeps its unused GPUs for a while: `edl keep`, and the page's form.

Who may write it the API server decides, by the credentials of `api`; what it means is read in `operator.idle.consent`.
"""

from __future__ import annotations

from autoscaler.clusters.kubernetes.api.api_port import Api, Preconditions
from autoscaler.clusters.kubernetes.api.kinds import PODS
from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.clusters.kubernetes.objects.labels import KEEP_UNTIL


async def write_keep(api: Api, *, namespace: str, name: str, uid: str, for_s: float, server_now_s: float) -> str | None:
    """Keep this very pod for so long from `server_now_s` on, and return until when; 0: no longer, and None.

    `server_now_s`: Unix time by the API server's clock, to which the operator compares; a laptop's may be hours off.
    Raises ClusterError.
    """
    until = to_time(server_now_s + for_s) if for_s else None
    change = {"metadata": {"annotations": {KEEP_UNTIL: until}}}
    await api.patch(PODS, name, change, namespace=namespace, only=Preconditions(uid=uid))
    return until
