"""How many masters a job has is what its spec says: a Deployment of masters that somebody scaled is scaled back.

Without a master nobody hands out batches, and the job's trainers hold their room for nothing.  The count is applied
(server-side) as EDL's own field, so that others see whose it is.  Whoever scales it again and again is answered once in
`AGAIN_S`.  What else somebody edits in the Deployment is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import whole
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.operator.controllers.job_store import Ears, Note
from autoscaler.operator.controllers.job_writer import Hands
from autoscaler.operator.job.job_pods import uid_of

AGAIN_S: Final = 5.0


class MasterCount:
    """Remembers nothing but when it last wrote: a new leader finds what there is to put right."""

    def __init__(self, hands: Hands, ears: Ears, *, clock: Callable[[], float]) -> None:
        self._hands = hands
        self._ears = ears
        self._clock = clock
        self._written_at_s: dict[str, float] = {}  # by UID of the Deployment, those of the last seconds

    async def keep(self, job: KubeJob, deployment: Raw) -> None:
        """See to it that the Deployment has as many replicas as the job has masters.  Raises ClusterError."""
        now_s, uid = self._clock(), uid_of(deployment)
        self._written_at_s = {of: at_s for of, at_s in self._written_at_s.items() if now_s < at_s + AGAIN_S}
        wanted, stands = job.spec.master.replicas, whole(deployment, "spec", "replicas", default=1)
        if stands == wanted or self._written_at_s.get(uid, -math.inf) + AGAIN_S > now_s:
            return
        self._written_at_s[uid] = now_s
        await self._hands.scale_master(deployment, wanted)
        message = (
            f"somebody set its Deployment to {stands} replicas; spec.master.replicas is {wanted}, which holds again"
        )
        self._ears.say(job, Note(reason="MastersRestored", message=message, is_warning=True))
