"""The rest of a cluster beside an API server in memory: a scheduler, kubelets and the Deployment controller, by steps.

Each does what its real counterpart would do with what it finds, and no more: the scheduler binds a pod to a node that
its affinity and its requests allow, kubelets make bound pods ready and let leaving ones go, and a Deployment keeps its
replicas.
"""

from autoscaler.clusters.kubernetes.api.kinds import DEPLOYMENTS, NODES, PODS, PRIORITY_CLASSES, TRAINING_JOBS
from autoscaler.clusters.kubernetes.memory_api import MemoryApi, MemoryServer, collect
from autoscaler.clusters.kubernetes.memory_api.field_ownership import FieldOwner
from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.pod_shapes import shape_of_spec

CONTROLLER = FieldOwner("kube-controller-manager", is_apply=False)
HASH = "7d9f8c"


class FakeControllers:
    """Steps everything but EDL.  `holds_back`: names of pods that the scheduler leaves alone."""

    def __init__(self, server):
        self.server = server
        self.holds_back = set()

    def add_node(self, name, *, cpu="4", memory="8Gi", pods="20", labels=None):
        body = {
            "metadata": {"name": name, "labels": labels or {}},
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        self.server.create(NODES, body, CONTROLLER)
        node = self.server.get(NODES, None, name)
        if "status" not in node or "allocatable" not in node["status"]:
            self.server.rewrite(NODES, node, node | {"status": body["status"]})

    def add_classes(self):
        for name, value in [
            ("edl-core", 0),
            ("edl-surplus", 0),
            *((f"edl-surplus-{grade}", -grade) for grade in range(1, 9)),
        ]:
            self.server.create(
                PRIORITY_CLASSES,
                {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"},
                CONTROLLER,
            )

    def step(self):
        """One round of everybody."""
        collect(self.server)
        for deployment in self.server.all(DEPLOYMENTS):
            self._replicate(deployment)
            observe(self.server, deployment)
        for pod in self.server.all(PODS):
            metadata, spec = pod["metadata"], pod["spec"]
            if "deletionTimestamp" in metadata:
                self.server.finish(metadata["namespace"], metadata["name"])
            elif "nodeName" in spec:
                self._make_ready(pod)
            elif not spec.get("schedulingGates") and metadata["name"] not in self.holds_back:
                self._bind(pod)

    def settle(self):
        """Until nothing moves."""
        before = None
        while before != self.server.history.version:
            before = self.server.history.version
            self.step()

    def _bind(self, pod):
        shape, used = shape_of_spec(pod["spec"], {}), {}
        for other in self.server.all(PODS):
            place = other["spec"].get("nodeName")
            if place and other["status"].get("phase") not in {"Succeeded", "Failed"}:
                used.setdefault(place, []).append(shape_of_spec(other["spec"], {}).requests)
        for raw in self.server.all(NODES):
            node = parse_node(raw)
            room = node.allocatable
            for requests in used.get(node.name, ()):
                room -= requests
            if node.is_open() and node.accepts(shape) and shape.requests.fits_into(room):
                self.server.bind(pod["metadata"]["namespace"], pod["metadata"]["name"], node.name)
                return

    def _make_ready(self, pod):
        bound = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
        conditions = [*(bound or [{"type": "PodScheduled", "status": "True"}]), {"type": "Ready", "status": "True"}]
        if pod["status"].get("phase") in {"Succeeded", "Failed"}:
            return
        self.server.rewrite(PODS, pod, pod | {"status": pod["status"] | {"phase": "Running", "conditions": conditions}})

    def end(self, namespace, name, *, code, at_s=None):
        """A pod's container ends by itself, at this instant in Unix seconds if its node says when."""
        pod = self.server.get(PODS, namespace, name)
        when = {} if at_s is None else {"finishedAt": to_time(at_s)}
        ended = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [
                {"name": pod["spec"]["containers"][0]["name"], "state": {"terminated": {"exitCode": code} | when}}
            ],
        }
        self.server.rewrite(PODS, pod, pod | {"status": pod["status"] | ended})

    def _replicate(self, deployment):
        metadata, spec = deployment["metadata"], deployment["spec"]
        owner = f"{metadata['name']}-{HASH}"
        mine = [
            pod
            for pod in self.server.all(PODS)
            if any(ref["name"] == owner for ref in pod["metadata"].get("ownerReferences", ()))
        ]
        for number in range(spec["replicas"] - len(mine)):
            body = {
                "metadata": {
                    "name": f"{owner}-{self.server.history.version}-{number}",
                    "namespace": metadata["namespace"],
                    "labels": {**spec["template"]["metadata"]["labels"], "pod-template-hash": HASH},
                    "ownerReferences": [
                        {
                            "apiVersion": "apps/v1",
                            "kind": "ReplicaSet",
                            "name": owner,
                            "uid": metadata["uid"],
                            "controller": True,
                        }
                    ],
                },
                "spec": spec["template"]["spec"],
            }
            self.server.create(PODS, body, CONTROLLER)
        for pod in mine[spec["replicas"] :]:
            self.server.delete(PODS, metadata["namespace"], pod["metadata"]["name"])


def observe(server, deployment):
    """As the Deployment's controller, which has made the ReplicaSet that the newest specification asks for."""
    status = deployment.get("status", {}) | {"observedGeneration": deployment["metadata"]["generation"]}
    server.rewrite(DEPLOYMENTS, deployment, deployment | {"status": status})


def add_job(server, raw):
    """Submit a TrainingJob as its owner would; return it as it stands."""
    metadata = {name: raw["metadata"][name] for name in ("name", "namespace")}
    return server.create(
        TRAINING_JOBS, {"metadata": metadata, "spec": raw["spec"]}, FieldOwner("kubectl", is_apply=False)
    )


__all__ = ["FakeControllers", "MemoryApi", "MemoryServer", "add_job"]
