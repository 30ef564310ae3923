"""The rest of a cluster in virtual time: scheduler, kubelets, Deployments, nodes that are cordoned, lost and come back.

It looks at the server every quarter of a second.  A pod is ready half a second after it is bound and gone a second
after it was told to go.  The scheduler takes pods by priority, binds what fits, and says of the others that they are
unschedulable; it preempts nobody (`reclaim: planner`).
"""

import asyncio

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import collect
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec
from tests.harness.virtual_time import now
from tests.unit.clusters.kubernetes.fake_controllers import CONTROLLER, HASH, FakeControllers, observe

TICK_S = 0.25
READY_AFTER_S = 0.5
GONE_AFTER_S = 1.0
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
OWNERS = frozenset({TRAINING_JOBS, DEPLOYMENTS})
ENDED = frozenset({"Succeeded", "Failed"})


class World(FakeControllers):
    """Lives until cancelled.  `look` is called after each of its steps."""

    def __init__(self, server, look):
        super().__init__(server)
        self._look = look
        self._seen = 0
        self._due_s = 0.0
        self._since_s = {}  # when a pod was first found in its state
        self._shapes = {}
        self._made = 0

    async def run(self):
        while True:
            self.tick()
            await asyncio.sleep(TICK_S)

    def tick(self):
        version = self.server.history.version
        if version != self._seen or now() >= self._due_s:
            self._clean_up()
            self._seen = version
            self._due_s = now() + 1e9
            for deployment in self.server.all(DEPLOYMENTS):
                self._replicate(deployment)
                observe(self.server, deployment)
            self._tend_pods()
        self._look()

    def scale(self, namespace, name, replicas):
        raw = self.server.get(DEPLOYMENTS, namespace, name)
        self.server.rewrite(DEPLOYMENTS, raw, raw | {"spec": raw["spec"] | {"replicas": replicas}})

    def cordon(self, name, *, is_cordoned):
        raw = self.server.get(NODES, None, name)
        self.server.rewrite(NODES, raw, raw | {"spec": {"unschedulable": True} if is_cordoned else {}})

    def silence(self, name):
        """The node's kubelet stops reporting."""
        raw = self.server.get(NODES, None, name)
        status = raw["status"] | {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        self.server.rewrite(NODES, raw, raw | {"status": status})

    def lose(self, name):
        """The node is taken out of the cluster, and its pods with it."""
        self.server.remove(NODES, self.server.get(NODES, None, name))
        for pod in self.server.all(PODS):
            if pod["spec"].get("nodeName") == name:
                self.server.remove(PODS, pod)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _replicate(self, deployment):
        """Pods that leave or have ended do not count; the youngest that waits goes first."""
        metadata, spec = deployment["metadata"], deployment["spec"]
        mine = [pod for pod in self.server.all(PODS) if counts_for(pod, metadata["uid"])]
        for _ in range(spec["replicas"] - len(mine)):
            self._made += 1
            body = {
                "metadata": {
                    "name": f"{metadata['name']}-{HASH}-{self._made}",
                    "namespace": metadata["namespace"],
                    "labels": {**spec["template"]["metadata"].get("labels", {}), "pod-template-hash": HASH},
                    "ownerReferences": [
                        {
                            "apiVersion": "apps/v1",
                            "kind": "ReplicaSet",
                            "name": f"{metadata['name']}-{HASH}",
                            "uid": metadata["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": spec["template"]["spec"],
            }
            self.server.create(PODS, body, CONTROLLER)
        mine.sort(key=lambda pod: ("nodeName" not in pod["spec"], pod["metadata"]["uid"]), reverse=True)
        for pod in mine[: max(0, len(mine) - spec["replicas"])]:
            self.server.delete(PODS, metadata["namespace"], pod["metadata"]["name"])

    def _clean_up(self):
        """The garbage collector, which is slow: when an owner has gone, or something was made for one that is gone."""
        changes = list(self.server.history.since(self._seen or 1))
        owners = {owner["metadata"]["uid"] for kind in OWNERS for owner in self.server.all(kind)}
        if any(change.after is None and change.kind in OWNERS for change in changes) or any(
            reference["uid"] not in owners
            for change in changes
            if change.before is None and change.after is not None
            for reference in change.after["metadata"].get("ownerReferences", ())
        ):
            collect(self.server)

    def _tend_pods(self):
        waiting = []
        for pod in self.server.all(PODS):
            metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
            if "deletionTimestamp" in metadata:
                if self._has_been(metadata["uid"], "leaving", GONE_AFTER_S):
                    self.server.finish(metadata["namespace"], metadata["name"])
            elif status.get("phase") in ENDED:
                continue
            elif "nodeName" in spec:
                if status["phase"] != "Running" and self._has_been(metadata["uid"], "bound", READY_AFTER_S):
                    self._make_ready(pod)
            elif not spec.get("schedulingGates"):
                waiting.append(pod)
        if waiting:
            self._schedule(sorted(waiting, key=lambda pod: (-pod["spec"].get("priority", 0), pod["metadata"]["uid"])))

    def _has_been(self, uid, state, for_s):
        since_s = self._since_s.setdefault((uid, state), now())
        if now() - since_s >= for_s:
            del self._since_s[uid, state]
            return True
        self._due_s = min(self._due_s, since_s + for_s)
        return False

    def _schedule(self, waiting):
        nodes = {raw["metadata"]["name"]: parse_node(raw) for raw in self.server.all(NODES)}
        free = {name: node.allocatable for name, node in nodes.items()}
        for pod in self.server.all(PODS):
            place = pod["spec"].get("nodeName")
            if place in free and pod["status"].get("phase") not in ENDED:
                free[place] -= self._shape(pod).requests
        for pod in waiting:
            shape, metadata = self._shape(pod), pod["metadata"]
            for name in sorted(nodes, key=lambda name: (-free[name].cpu_milli, name)):
                if nodes[name].is_open() and nodes[name].accepts(shape) and shape.requests.fits_into(free[name]):
                    free[name] -= shape.requests
                    self.server.bind(metadata["namespace"], metadata["name"], name)
                    break
            else:
                status = pod["status"] | {"conditions": [UNSCHEDULABLE]}
                self.server.rewrite(PODS, pod, pod | {"status": status})

    def _shape(self, pod):
        """Its node may have been written into its affinity since it was last looked at."""
        key = pod["metadata"]["uid"], bool(pod["spec"].get("schedulingGates"))
        if key not in self._shapes:
            self._shapes[key] = shape_of_spec(pod["spec"], {})
        return self._shapes[key]


def counts_for(pod, owner_uid):
    metadata = pod["metadata"]
    return (
        any(ref["uid"] == owner_uid for ref in metadata.get("ownerReferences", ()))
        and "deletionTimestamp" not in metadata
        and pod["status"].get("phase") not in ENDED
    )
