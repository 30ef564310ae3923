"""Parameter servers that come and go: what a job's master is told, and when the pod of a server may be deleted.

The planner wants a number, the operator creates and deletes pods, the master moves what servers hold.  The master is
told one number, n servers with the ordinals 0 to n - 1, whenever it says another: read off the pods that stand, so a
new leader says the same (`jobs.servers`).  A pod that comes raises it.  One that the planner wants gone lowers it, and
stays until the master says that it holds nothing: nobody waits for its room, and once it is told to leave it has its
grace and no more.  A master that is silent keeps nobody for ever: then the server gets SIGTERM and empties itself
within its grace, if anybody answers *it*.  One that answers without leading is not silent: its etcd is away, and with
it all who could take what the server holds (ADR 0156).

Whatever takes a server by force (a drain, a gang that leaves whole, the end of its job) does not come by here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.objects.fields import key_of, text
from autoscaler.clusters.kubernetes.parsing.server_replacement import replaced_by
from autoscaler.clusters.kubernetes.parsing.training_jobs import KubeJob
from autoscaler.domain import Action, Cause, DeletePod, JobName, JobState, PodName, Role
from autoscaler.jobs.answers import NoAnswer
from autoscaler.jobs.hang_detection import SILENCE_LIMIT_S
from autoscaler.jobs.progress import JobProgress, shortened
from autoscaler.jobs.server_count import SPARE_ORDINALS, servers_wanted
from autoscaler.manifests.api_types import ReplicaBounds
from autoscaler.operator.controllers.ground import Ground
from autoscaler.operator.controllers.job_store import Note
from autoscaler.operator.controllers.master_client import Asking
from autoscaler.operator.job.job_pods import has_ended, is_leaving, is_seated, ordinal_of, role_of, standing, uid_of
from autoscaler.operator.job.job_record import SERVING, JobRecord

VOLUNTARY: Final = frozenset({Cause.RATIO, Cause.EDIT})
"""Why a server of a job that goes on leaves of its own accord: fewer trainers, or its owner's wish."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A server that the planner wants gone, and that stays for now."""

    ordinal: int
    cause: Cause
    since_s: float


Partings: TypeAlias = Mapping[PodName, Parting]


def count_to_tell(
    sizes: ReplicaBounds,
    *,
    target: int,
    standing: Collection[int],
    parting: Collection[int],
    told: int,
    moving_in: Collection[int] = (),
) -> int:
    """How many servers the master is to count on.  `told`: what it counts on now; `target`: what the planner wants.

    A shrink that an earlier leader has begun goes on: what the planner does not want back is not asked back, though the
    planner of this term may still be waiting out a window before it says so.  One of `moving_in` is no such server: it
    stands beside the one whose place it takes, and is one more for as long as that takes (ADR 0118).
    """
    count = servers_wanted(sizes.minimum, (ordinal for ordinal in standing if ordinal not in parting))
    count = min(count, sizes.maximum + SPARE_ORDINALS)  # whatever pods somebody else has made
    enough = max(sizes.minimum, target) <= sum(ordinal < told for ordinal in standing if ordinal not in parting)
    kept = max([told, *(ordinal + 1 for ordinal in moving_in)])
    return kept if enough and kept < count else count


def why_it_stays(parting: Parting, record: JobRecord, now_s: float) -> str:
    """Why the server's pod is not deleted yet; empty: it may be.  Without numbers: each would be one more status."""
    progress = record.progress
    heard_s = max(parting.since_s, record.progress_at_s, record.refused_at_s)
    is_heard = now_s - heard_s < SILENCE_LIMIT_S
    if is_heard and record.refused_at_s > record.progress_at_s:
        return "no master leads its job now, and none but it can say what it holds"
    if progress is None or not is_heard:
        return f"its job's master has {SILENCE_LIMIT_S:.0f} s to say what it holds" if is_heard else ""
    if progress.servers_wanted > parting.ordinal:
        return "its job's master is yet to be told"
    if progress.phase not in SERVING:
        return f"its job's master does not know yet what it holds: {progress.phase}"
    is_empty = not dict(progress.buckets).get(parting.ordinal)
    return "" if is_empty else "what it holds is being moved to the others"


class Servers:
    """All jobs' servers.  `asking` finds the master; `target_of`: as last planned, None before the first plan.

    `may_tell`: whether this operator acts on the job now.  `touch`: what the planner was refused may go now.
    """

    def __init__(
        self,
        ground: Ground,
        asking: Asking,
        *,
        record_of: Callable[[JobName], JobRecord | None],
        target_of: Callable[[JobName], int | None],
        may_tell: Callable[[KubeJob], bool],
        say: Callable[[KubeJob, Note], None],
        touch: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._ground = ground
        self._asking = asking
        self._record_of = record_of
        self._target_of = target_of
        self._may_tell = may_tell
        self._say = say
        self._touch = touch
        self._clock = clock
        self._partings: dict[JobName, dict[PodName, Parting]] = {}
        self._refused: dict[JobName, str] = {}

    # ---- what the planner wants gone ----------------------------------------------------------------------------

    def hold(self, action: DeletePod) -> str:
        """The planner wants this pod gone: why it stays for now; empty: it is to be told to leave."""
        record = self._record_of(action.job)
        if action.role is not Role.SERVER or action.cause not in VOLUNTARY or record is None:
            return ""
        raw = self._standing(record.job).get(action.pod)
        if raw is None or record.life.state is not JobState.ACTIVE:
            return ""
        mine = self._partings.setdefault(action.job, {})
        if action.pod not in mine:
            mine[action.pod] = Parting(ordinal=ordinal_of(raw), cause=action.cause, since_s=self._clock())
            told = "it is to leave, and stays until what it holds has been moved to the others"
            self._say(record.job, Note(reason="ServerParting", message=told, pod=action.pod))
        return why_it_stays(mine[action.pod], record, self._clock())

    def keep(self, wanted: Iterable[Action]) -> None:
        """Only these are to go by the newest plan: the others stay."""
        named = {action.pod for action in wanted if isinstance(action, DeletePod)}
        for job, mine in tuple(self._partings.items()):
            self._partings[job] = {pod: parting for pod, parting in mine.items() if pod in named}
            if not self._partings[job]:
                del self._partings[job]

    def parting(self, job: JobName) -> Partings:
        """The servers that the planner wants gone and that stay for now."""
        return self._partings.get(job, {})

    def forget(self, job: JobName) -> None:
        """The job is gone."""
        self._partings.pop(job, None)
        self._refused.pop(job, None)

    # ---- what the master is told --------------------------------------------------------------------------------

    async def ask(self, job: KubeJob, masters: Sequence[Raw]) -> tuple[str, JobProgress] | NoAnswer:
        """As `Asking.ask`; the master that answers is told of another number than it counts on."""
        answer = await self._asking.ask(job, masters)
        if not isinstance(answer, tuple):
            return answer
        leader, progress = answer
        count = self._count(job, progress)
        if count is not None and count != progress.servers_wanted:
            raw = next(raw for raw in masters if text(raw, "metadata", "name") == leader)
            progress = await self._tell(job, raw, progress, count)
        if self._partings.get(job.key):
            self._touch()
        return leader, progress

    def _count(self, job: KubeJob, progress: JobProgress) -> int | None:
        """None: there is nothing to tell."""
        record, target = self._record_of(job.key), self._target_of(job.key)
        if job.spec.server is None or record is None or target is None or not self._may_tell(job):
            return None
        if record.life.state is not JobState.ACTIVE:
            return None  # what ends takes its servers along
        ended = [raw for raw in self._seated(job) if has_ended(raw) and not is_leaving(raw)]
        if any(uid_of(raw) not in record.judged for raw in ended):
            return None  # it may have been let go: it is judged by the number that has held until now (`failures`)
        there = self._standing(job)
        parting = self.parting(job.key)
        return count_to_tell(
            job.spec.server.replicas,
            target=target,
            standing=[ordinal_of(raw) for raw in there.values()],
            parting=[parting[name].ordinal for name in there.keys() & parting.keys()],
            told=progress.servers_wanted,
            moving_in=[ordinal_of(raw) for raw in there.values() if replaced_by(raw, self._ground.pod) is not None],
        )

    async def _tell(self, job: KubeJob, leader: Raw, progress: JobProgress, count: int) -> JobProgress:
        answer = await self._asking.set_servers(job, leader, count)
        if answer is None:
            return progress  # said again with the next question
        refused = "" if answer.refused is None else shortened(f"{answer.refused.field} {answer.refused.message}")
        if refused and refused != self._refused.get(job.key):
            told = f"its master does not take {count} parameter servers: {refused}"
            self._say(job, Note(reason="ServersRefused", message=told, is_warning=True))
        elif not refused:
            log.info("tj/%s: its master counts on %d servers in place of %d", job.key, count, progress.servers_wanted)
        self._refused[job.key] = refused
        return replace(progress, servers_wanted=answer.count)

    def _standing(self, job: KubeJob) -> dict[PodName, Raw]:
        return {PodName(key_of(raw)): raw for raw in standing(self._seated(job), Role.SERVER)}

    def _seated(self, job: KubeJob) -> list[Raw]:
        """Its servers, standing or not."""
        pods = self._ground.pods(job)
        return [raw for raw in pods if role_of(raw) is Role.SERVER and is_seated(raw, job.name)]
