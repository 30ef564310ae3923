"""Invariants that hold after every change and before every write, whatever fails.

The checker reads every change on the API server, and every write at the moment when it is carried out.

- A1: the first gate of a gang is lifted once all required pods exist; no gang stays half un-gated.
- A1: EDL deletes no trainer below its job's minimum, unless the job stops or its gang leaves whole.
- A2: on no node do EDL's own pods, bound or pinned to it, request more than it has.
- A7: no write rests on a view that is known to be stale.
- EDL writes its own objects alone.
"""

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.cache.object_cache import AGED_KINDS, key_of
from autoscaler.clusters.kubernetes.memory_api import MemoryApi
from autoscaler.clusters.kubernetes.objects.labels import GATE, JOB, ROLE
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.pod_objects import gates_of
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec
from autoscaler.clusters.kubernetes.writes.pod_writer import pinned_node
from tests.harness.virtual_time import now

ENDED = frozenset({"Succeeded", "Failed"})
HALF_LIMIT_S = 45.0  # binding deadline, a silent watch, and what is done about it
TOO_OLD_S = 10.5


class InvariantChecker:
    """`knows_old`: EDL reads old state and cannot know it, so that only what the server itself guards can hold."""

    def __init__(self, server, *, knows_old):
        self.problems = []
        self.store = None  # that of the autoscaler that runs
        self.limit_s = HALF_LIMIT_S
        self._server = server
        self._knows_old = knows_old
        self._seen = server.history.version
        self._pods = {}
        self._nodes = {}
        self._half_since_s = {}

    def observe(self):
        """Check the changes since the last call, one by one."""
        for change in self._server.history.since(self._seen):
            self._seen = change.version
            known = {PODS: self._pods, NODES: self._nodes}.get(change.kind)
            if known is None:
                continue
            if change.after is None:
                known.pop(key_of(change.before), None)
            else:
                known[key_of(change.after)] = change.after
            if change.kind == PODS and change.after is not None:
                self._check_promises(pinned_node(change.after) if job_of(change.after) else None)
        self._check_halves()

    def before_write(self, verb, kind, namespace, name):
        """Check a write of EDL's before it is carried out."""
        self._check_age(verb, kind, name)
        if kind != PODS or verb == "create":
            return
        try:
            raw = self._server.get(PODS, namespace, name)
        except Exception:  # noqa: BLE001 - the server says so itself
            return
        if job_of(raw) is None:
            self._say(f"{verb} of {name}, a pod of somebody else")
        elif verb == "delete":
            self._check_minimum(raw)
        elif verb == "patch":
            self._check_first_gate(raw)

    # ---- promises -------------------------------------------------------------------------------------------------

    def _check_age(self, verb, kind, name):
        if self.store is None or kind not in {PODS, DEPLOYMENTS}:
            return
        confirmed_at_s = self.store.oldest_confirmed_at_s(AGED_KINDS)
        if confirmed_at_s is None or now() - confirmed_at_s > TOO_OLD_S:
            age = "nothing is known" if confirmed_at_s is None else f"the view is {now() - confirmed_at_s:.1f} s old"
            self._say(f"A7: {verb} {kind.plural} {name} while {age}")

    def _check_promises(self, node_name):
        raw = self._nodes.get(("", node_name))
        if raw is None or self._knows_old:
            return
        room = parse_node(raw).allocatable
        for pod in self._pods.values():
            if job_of(pod) and not has_ended(pod) and not gates_of(pod) and place_of(pod) == node_name:
                room -= shape_of_spec(pod["spec"], {}).requests
        if room.is_negative():
            self._say(f"A2: {node_name} is promised to more of EDL's pods than it holds")

    def _check_minimum(self, raw):
        job = self._job(raw)
        if raw["metadata"]["labels"].get(ROLE) != "trainer" or job is None or self._knows_old or has_ended(raw):
            return
        if job["spec"].get("runPolicy", {}).get("suspend") or "deletionTimestamp" in raw["metadata"]:
            return
        if not self._has_master(job):
            return  # a gang that has lost its race leaves whole
        staying = [pod for pod in self._members(job, "trainer") if pod["metadata"]["uid"] != raw["metadata"]["uid"]]
        if "nodeName" in raw["spec"] and len(staying) < job["spec"]["trainer"]["minReplicas"]:
            self._say(f"A1: {raw['metadata']['name']} is deleted, {len(staying)} trainers stay")

    def _check_first_gate(self, raw):
        job = self._job(raw)
        if job is None or GATE not in gates_of(raw) or self._has_master(job):
            return
        trainers, servers = self._members(job, "trainer"), self._members(job, "server")
        if any(not gates_of(pod) for pod in (*trainers, *servers)):
            return
        wanted = job["spec"]["trainer"]["minReplicas"], job["spec"].get("parameterServer", {}).get("minReplicas", 0)
        if (len(trainers), len(servers)) < wanted or len(servers) < wanted[1]:
            self._say(f"A1: the first gate of {job['metadata']['name']} is lifted with {len(trainers)} trainers")

    def _check_halves(self):
        halves = set()
        for job in self._server.all(TRAINING_JOBS):
            members = (*self._members(job, "trainer"), *self._members(job, "server"))
            if {bool(gates_of(pod)) for pod in members} == {True, False}:
                halves.add(job["metadata"]["uid"])
        self._half_since_s = {uid: self._half_since_s.get(uid, now()) for uid in halves}
        for uid, since_s in self._half_since_s.items():
            if now() - since_s > self.limit_s:
                self._say(f"A1: a gang has been half un-gated for {self.limit_s:g} s ({uid})")
                self._half_since_s[uid] = now()

    # ---- state on the server ----------------------------------------------------------------------------------------

    def _job(self, pod):
        name = pod["metadata"]["labels"][JOB]
        jobs = {job["metadata"]["name"]: job for job in self._server.all(TRAINING_JOBS)}
        return jobs.get(name)

    def _members(self, job, role):
        return [
            pod
            for pod in self._server.all(PODS)
            if pod["metadata"].get("labels", {}).get(ROLE) == role
            and any(ref["uid"] == job["metadata"]["uid"] for ref in pod["metadata"].get("ownerReferences", ()))
            and "deletionTimestamp" not in pod["metadata"]
            and not has_ended(pod)
        ]

    def _has_master(self, job):
        masters = (deployment["metadata"] for deployment in self._server.all(DEPLOYMENTS))
        return any(ref["uid"] == job["metadata"]["uid"] for one in masters for ref in one.get("ownerReferences", ()))

    def _say(self, problem):
        self.problems.append(f"at {now():.2f} s: {problem}")


class CheckedApi(MemoryApi):
    """Calls the checker before each write."""

    def __init__(self, server, checker):
        super().__init__(server)
        self._checker = checker

    async def create(self, kind, body):
        self._checker.before_write("create", kind, body["metadata"].get("namespace"), body["metadata"]["name"])
        return await super().create(kind, body)

    async def patch(self, kind, name, change, *, namespace=None, **more):
        self._checker.before_write("patch", kind, namespace, name)
        return await super().patch(kind, name, change, namespace=namespace, **more)

    async def delete(self, kind, name, *, namespace=None, **more):
        self._checker.before_write("delete", kind, namespace, name)
        await super().delete(kind, name, namespace=namespace, **more)


def job_of(pod):
    labels = pod["metadata"].get("labels", {})
    return labels.get(JOB) if labels.get(ROLE) != "master" else None


def place_of(pod):
    """The node to which the pod is bound or pinned."""
    return pod["spec"].get("nodeName") or pinned_node(pod)


def has_ended(pod):
    return pod["status"].get("phase") in ENDED
