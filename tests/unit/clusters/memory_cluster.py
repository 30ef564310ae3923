"""A small cluster in memory and virtual time, behind the port `Cluster`: it passes `cluster_contract`.

It knows no EDL: pods stand on nodes, leave after their grace, and external pods are bound to the emptiest node that
holds them.  `check_capacity` is A2 on what stands.
"""

from dataclasses import replace

from autoscaler.cluster_port import WriteOutcome, WriteResult
from autoscaler.clusters.local.machine.scheduling import place_pending
from autoscaler.domain import (
    NOTHING,
    AdmitGang,
    Capabilities,
    ClusterView,
    CreatePod,
    DeletePod,
    Job,
    JobState,
    Node,
    Pod,
    PodPhase,
    Quota,
    QuotaLimit,
    Role,
    Tier,
    Workload,
)


class MemoryCluster:
    """Nodes, jobs, workloads and pods by name; `drain_s` is how long a pod really takes to leave, grace at most.

    `hard`: what the jobs of a namespace may ask for, by namespace; what is above that is refused.  `scoped`: quotas
    over some of their pods, likewise; what is used of them is counted here, and surplus then has its grade's priority.
    """

    def __init__(self, nodes=(), jobs=(), workloads=(), pods=(), *, drain_s=1.0, now_s=1_000.0):
        self.nodes = {node.name: node for node in nodes}
        self.jobs = {job.name: job for job in jobs}
        self.workloads = {workload.name: workload for workload in workloads}
        self.pods = {pod.name: pod for pod in pods}
        self.hard = {}
        self.scoped = ()
        self.leaves_at_s = {}
        self.capabilities = Capabilities()
        self.drain_s = drain_s
        self.now_s = now_s
        self.revision = 1
        self.seen_revision = 0
        self.applied = []

    def __repr__(self):
        return (
            f"MemoryCluster({list(self.nodes.values())}, {list(self.jobs.values())}, pods={list(self.pods.values())})"
        )

    # The port.

    def now(self):
        return self.now_s

    async def observe(self):
        return self.view()

    async def apply(self, action):
        return self.carry_out(action)

    async def changed(self, timeout_s):
        """Virtual time: without a change it passes at once, up to the next instant at which something happens."""
        if self.seen_revision == self.revision:
            self.advance(timeout_s)
        is_changed = self.seen_revision != self.revision
        self.seen_revision = self.revision
        return is_changed

    # The cluster.

    def view(self, **fields):
        return ClusterView(
            revision=self.revision,
            observed_at_s=self.now_s,
            nodes=tuple(self.nodes.values()),
            pods=tuple(self.pods.values()),
            jobs=tuple(self.jobs.values()),
            workloads=tuple(self.workloads.values()),
            capabilities=self.capabilities,
            **{"quotas": self.quotas(), **fields},
        )

    def quotas(self):
        """A quota for each namespace that has one, with what its pods ask for until they are gone; then the scoped."""
        counted = tuple(
            replace(
                quota,
                limits=tuple(replace(limit, used=self.counted(quota).amount(limit.resource)) for limit in quota.limits),
            )
            for quota in self.scoped
        )
        return counted + tuple(
            Quota(
                namespace=namespace,
                name="team",
                limits=tuple(
                    QuotaLimit(resource=name, hard=amount, used=self.used_in(namespace).amount(name))
                    for name, amount in hard.amounts()
                ),
            )
            for namespace, hard in self.hard.items()
        )

    def used_in(self, namespace):
        owned = {job.name for job in self.jobs.values() if job.namespace == namespace}
        return sum((pod.requests for pod in self.pods.values() if pod.job in owned), start=NOTHING)

    def counted(self, quota):
        """What a quota counts of what stands."""
        return self.asked_of(quota, (pod for pod in self.pods.values() if pod.job in self.jobs))

    def asked_of(self, quota, pods):
        found = (pod.requests for pod in pods if self.is_counted(quota, self.jobs[pod.job], pod))
        return sum(found, start=NOTHING)

    def is_counted(self, quota, job, pod):
        grade = max(1, -pod.priority) if pod.tier is Tier.SURPLUS else 0
        return job.namespace == quota.namespace and quota.counts(job, pod.role, grade)

    def over_scoped(self, pods):
        """The first scoped quota that does not hold these pods beside what stands; None: all do."""
        for quota in self.scoped:
            asked, used = self.asked_of(quota, pods), self.counted(quota)
            if any(0 < asked.amount(one.resource) > one.hard - used.amount(one.resource) for one in quota.limits):
                return quota
        return None

    def touch(self):
        self.revision += 1

    def put(self, *things):
        """Add or replace nodes, jobs or pods."""
        for thing in things:
            known = {Node: self.nodes, Job: self.jobs, Pod: self.pods, Workload: self.workloads}[type(thing)]
            known[thing.name] = thing
        self.touch()

    def lose(self, pod_name):
        """A pod is gone at once, as a killed process is."""
        self.pods.pop(pod_name)
        self.leaves_at_s.pop(pod_name, None)
        self.touch()

    def advance(self, seconds):
        """Let time pass: pods whose time has come are gone; started ones are ready."""
        self.now_s += seconds
        for name in [name for name, at_s in self.leaves_at_s.items() if at_s <= self.now_s]:
            self.lose(name)
        for pod in list(self.pods.values()):
            if pod.phase is PodPhase.STARTING:
                self.put(replace(pod, phase=PodPhase.READY))

    def bind_others(self):
        """Do what a scheduler does: bind external pods where there is room, and judge the rest."""
        pending = [p for p in self.pods.values() if p.role is Role.EXTERNAL and p.phase is PodPhase.PENDING]
        free = {name: self.free_on(name) for name in self.nodes}
        for name, node in place_pending(pending, list(self.nodes.values()), free).items():
            pod = self.pods[name]
            if node is not None:
                self.put(replace(pod, node=node, phase=PodPhase.STARTING, unschedulable_since_s=None))
            elif pod.unschedulable_since_s is None:
                self.put(replace(pod, unschedulable_since_s=self.now_s))

    def occupied_on(self, node):
        return sum((pod.requests for pod in self.pods.values() if pod.node == node), start=NOTHING)

    def free_on(self, node):
        return self.nodes[node].allocatable - self.occupied_on(node)

    def check_capacity(self):
        """A2: what stands on a node never asks for more than it has."""
        for name, node in self.nodes.items():
            assert self.occupied_on(name).fits_into(node.allocatable), f"{name} carries {self.occupied_on(name)}"

    # Writes.

    def carry_out(self, action):
        match action:
            case CreatePod():
                outcome = self.create((action,))
            case AdmitGang():
                outcome = self.create(action.pods)
            case DeletePod():
                outcome = self.delete(action)
        self.applied.append((action, outcome))
        return outcome

    def create(self, wanted):
        made = {}
        for want in wanted:
            job = self.jobs.get(want.job)
            if job is None or job.state is not JobState.ACTIVE or want.node not in self.nodes:
                return WriteOutcome(result=WriteResult.REFUSED, message=f"{want.job} on {want.node}: gone")
            pod = pod_of(job, want, self.now_s, is_graded=bool(self.scoped))
            if pod.name in self.pods:
                if self.pods[pod.name].phase is PodPhase.TERMINATING or self.pods[pod.name].node != want.node:
                    return WriteOutcome(result=WriteResult.REFUSED, message=f"{pod.name}: its name is taken")
                continue
            made[pod.name] = pod
            coming = sum((other.requests for other in made.values() if other.node == want.node), start=NOTHING)
            if not self.nodes[want.node].is_open() or not coming.fits_into(self.free_on(want.node)):
                return WriteOutcome(result=WriteResult.REFUSED, message=f"{want.node}: no room")
        hard = self.hard.get(self.jobs[wanted[0].job].namespace)
        total = sum((pod.requests for pod in made.values()), start=NOTHING)
        if made and hard is not None:
            used = self.used_in(self.jobs[wanted[0].job].namespace)
            if any(total.amount(name) > max(0, amount - used.amount(name)) for name, amount in hard.amounts()):
                return WriteOutcome(result=WriteResult.REFUSED, message=f"{wanted[0].job}: over its quota")
        if (over := self.over_scoped(list(made.values()))) is not None:
            return WriteOutcome(result=WriteResult.REFUSED, message=f"{wanted[0].job}: over its quota {over.name}")
        if made:
            self.pods |= made
            self.touch()
        return WriteOutcome(result=WriteResult.DONE)

    def delete(self, action):
        pod = self.pods.get(action.pod)
        if pod is None or pod.phase is PodPhase.TERMINATING:
            return WriteOutcome(result=WriteResult.DONE)
        if pod.job != action.job:
            return WriteOutcome(result=WriteResult.REFUSED, message=f"{action.pod} is not of {action.job}")
        self.pods[pod.name] = replace(pod, phase=PodPhase.TERMINATING)
        self.leaves_at_s[pod.name] = self.now_s + min(self.drain_s, action.grace_s)
        self.touch()
        return WriteOutcome(result=WriteResult.DONE)


def pod_of(job, want, now_s, *, is_graded=False):
    """The pod that a creation asks for."""
    specs = {Role.TRAINER: job.trainer, Role.SERVER: job.servers, Role.MASTER: job.master}
    return Pod(
        name=f"{want.job}-{want.role}-{want.ordinal}",
        role=want.role,
        tier=want.tier,
        shape=specs[want.role].shape,
        phase=PodPhase.STARTING,
        priority=job.priority if want.tier is not Tier.SURPLUS else -want.grade if is_graded else 0,
        node=want.node,
        job=want.job,
        ordinal=want.ordinal,
        created_at_s=now_s,
    )
