"""One term of a leader, put together as `operator.leading` does and moved by hand in steps of a second."""

from contextlib import suppress

from autoscaler.clusters.kubernetes.api.api_port import EVERYWHERE
from autoscaler.clusters.kubernetes.api.kinds import TRAINING_JOBS
from autoscaler.clusters.kubernetes.builders.build_settings import BuildSettings, EtcdAccess
from autoscaler.clusters.kubernetes.cache.object_cache import WATCHED_KINDS
from autoscaler.domain import Policy, Reclaim
from autoscaler.errors import ClusterError
from autoscaler.jobs.master_connections import MasterConnections
from autoscaler.operator.leader_term import LeaderTerm
from autoscaler.operator.metrics import Metrics
from autoscaler.operator.term_settings import TermSettings
from tests.unit.operator.bench import JOB, OperatorBench, write_events


class Term:
    """A leader and the rest of the cluster.  `around` puts something around the API through which EDL goes."""

    def __init__(
        self,
        *,
        policy=None,
        spec=None,
        job=None,
        around=lambda bench: bench.api,
        elastic_servers=False,
        moves_servers=False,
        notices=None,
        reads_gpu_reports=False,
    ):
        self.bench = OperatorBench(**(spec or {}))
        self.elastic_servers = elastic_servers
        self.moves_servers = moves_servers
        self.notices = notices
        self.reads_gpu_reports = reads_gpu_reports
        self.metrics = Metrics()
        self.policy = policy or Policy(reclaim=Reclaim.SCHEDULER, quiet_window_s=0.0, up_window_s=0.0)
        self.api = around(self.bench)
        if job is not None:
            self.bench.edit(**job)
        self.lead()

    def lead(self):
        """Another leader, which knows nothing yet."""
        self.leading = LeaderTerm(
            self.api,
            TermSettings(
                identity="edl-0",
                policy=self.policy,
                build=BuildSettings(
                    image="edl:1",
                    etcd=EtcdAccess(endpoints="http://etcd:2379"),
                    elastic_servers=self.elastic_servers,
                    moves_servers=self.moves_servers,
                    reclaim=self.policy.reclaim,
                ),
                notices=self.notices,
                reads_gpu_reports=self.reads_gpu_reports,
            ),
            self.metrics,
            MasterConnections(),
            clock=lambda: self.bench.now_s,
            wall_s=lambda: self.bench.now_s,
        )

    @property
    def server(self):
        return self.bench.server

    async def watch(self):
        for kind in WATCHED_KINDS:
            listing = await self.bench.api.list(kind, EVERYWHERE)
            self.leading.cache.apply_listing(kind, listing, requested_at_s=self.bench.now_s)
        self.leading.cluster.view()

    async def step(self, times=1):
        for _ in range(times):
            self.bench.rest.settle()
            await self.watch()
            await self.leading.loop.run_pass()
            with suppress(ClusterError):
                await self.leading.cluster._gangs.settle(self.bench.now_s)
            with suppress(ClusterError):
                await self.leading.jobs.reconcile(JOB)
            while self.leading.failures.tasks:
                for task in tuple(self.leading.failures.tasks):
                    await task
            await self.watch()
            await self.leading.statuses.write(JOB)
            await write_events(self.leading.events)
            await self.watch()
            self.bench.now_s += 1.0

    def status(self):
        return self.server.get(TRAINING_JOBS, "team-a", "digits").get("status") or {}

    def told(self, kind):
        found = next((one for one in self.status().get("conditions", ()) if one["type"] == kind), {})
        return found.get("status"), found.get("reason")

    def notes(self):
        """In the order in which they were written: their names are random."""
        written = sorted(self.bench.events(), key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["reason"], event["note"]) for event in written]

    def reasons(self):
        return [event["reason"] for event in self.bench.events()]
