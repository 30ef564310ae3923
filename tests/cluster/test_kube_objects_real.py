"""The real API server takes what EDL builds, and the real scheduler counts as EDL counts."""

import json
from datetime import UTC, datetime

import pytest
import pytest_asyncio
from kubernetes import client

from autoscaler.clusters.kubernetes.api.api_port import Scope, Subresource
from autoscaler.clusters.kubernetes.api.http_client import connect
from autoscaler.clusters.kubernetes.api.kinds import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    TRAINING_JOBS,
)
from autoscaler.clusters.kubernetes.builders.disruption_budget import build_budget
from autoscaler.clusters.kubernetes.builders.job_identity import build_secrets, issue_identity, parse_identity
from autoscaler.clusters.kubernetes.builders.master_deployment import build_master, build_service
from autoscaler.clusters.kubernetes.builders.member_pods import build_pod, ungate_patch
from autoscaler.clusters.kubernetes.objects.names import authority_secret, master_secret, member_secret
from autoscaler.clusters.kubernetes.parsing.deployment_objects import job_of_master
from autoscaler.clusters.kubernetes.parsing.node_objects import parse_node
from autoscaler.clusters.kubernetes.parsing.pod_objects import PodContext, parse_pod
from autoscaler.clusters.kubernetes.parsing.pod_requests import pod_request
from autoscaler.clusters.kubernetes.parsing.training_jobs import parse_job, to_planner_job
from autoscaler.domain import PodPhase, Role, Tier
from autoscaler.operator.job.throughput_status import throughput_in_status, throughput_status
from tests.cluster.kwok_nodes import IMAGE, NodeShape
from tests.cluster.trainingjobs import DEFINITION, GROUP, make_job
from tests.harness.waiting import wait_for
from tests.unit.clusters.kubernetes.raw_objects import SETTINGS, placement
from tests.unit.operator.bench import JOB, OperatorBench
from tests.unit.operator.controllers.test_throughput import train

MIB = 1 << 20


def container(name="main", *, requests=None, limits=None, **fields):
    asked = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "image": IMAGE, "resources": asked, **fields}


SPECS = {
    "one container": {"containers": [container(requests={"cpu": "700m", "memory": "300Mi"})]},
    "limits alone": {"containers": [container(limits={"cpu": "1500m", "memory": "1G"})]},
    "init larger": {
        "containers": [container(requests={"cpu": "100m"}), container("b", requests={"cpu": "150m", "memory": "10Mi"})],
        "initContainers": [container("i", requests={"cpu": "900m", "memory": "64Mi"})],
    },
    "sidecars": {
        "containers": [container(requests={"cpu": "300m", "memory": "100Mi"})],
        "initContainers": [
            container("early", requests={"cpu": "600m"}),
            container("side", requests={"cpu": "200m", "memory": "50Mi"}, restartPolicy="Always"),
            container("late", requests={"cpu": "500m", "memory": "20Mi"}),
        ],
    },
    "pod level": {
        "containers": [container(requests={"cpu": "900m", "memory": "10Mi"})],
        "resources": {"requests": {"cpu": "1200m"}, "limits": {"cpu": "2", "memory": "1Gi"}},
    },
    "pod limit alone": {
        "containers": [container()],
        "resources": {"limits": {"cpu": "800m", "memory": "256Mi"}},
    },
    "finer than a unit": {"containers": [container(requests={"cpu": "0.0015", "memory": "1100M"})]},
    "gpus": {"containers": [container(requests={"cpu": "1", "memory": "1Mi"}, limits={"nvidia.com/gpu": "2"})]},
}


@pytest.fixture(scope="module")
def definition(control_plane):
    """TrainingJob and EDL's classes, as the chart has them; classes made here are gone afterwards: it makes its own."""
    if "trainingjobs.edl.dev" not in control_plane.kubectl("get", "crd", "-o", "name"):
        control_plane.kubectl("apply", "--server-side", "-f", str(DEFINITION))
    control_plane.wait_served("trainingjobs.edl.dev")
    values = {"edl-core": 0} | {f"edl-surplus-{k}": -k for k in range(1, 9)}
    standing = control_plane.kubectl("get", "priorityclass", "-o", "name").split()
    missing = [name for name in values if f"priorityclass.scheduling.k8s.io/{name}" not in standing]
    for name in missing:
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        body |= {"value": values[name], "preemptionPolicy": "Never"}
        control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    yield
    for name in missing:
        control_plane.kubectl("delete", "priorityclass", name)


@pytest_asyncio.fixture
async def door(control_plane):
    api = await connect(control_plane.kubeconfig)
    yield api
    await api.close()


def offer(spec, *, less=""):
    """A node that holds exactly this pod; or one unit less of one resource."""
    asked = pod_request(spec)
    return NodeShape(
        cpu=f"{asked.cpu_milli - (less == 'cpu')}m",
        memory=str(asked.memory_bytes - (less == "memory")),
        gpus=asked.gpu_count - (less == "gpu"),
    )


def test_scheduler_counts_a_pod_as_we_do(nodes, core, namespace):
    """On a node of exactly its request a pod is bound; with one unit less it is not (rule 12)."""
    cases = []
    for title, spec in SPECS.items():
        asked = pod_request(spec)
        lesser = ["cpu", "memory", *(["gpu"] if asked.gpu_count else [])]
        cases += [(title, spec, less) for less in ("", *lesser) if not less or asked.amount(less) > 0]
    names = nodes(*(offer(spec, less=less) for _, spec, less in cases))
    for number, (node, (_, spec, _less)) in enumerate(zip(names, cases, strict=True)):
        pinned = {**spec, "nodeSelector": {"kubernetes.io/hostname": node}}
        core.create_namespaced_pod(namespace, {"metadata": {"name": f"case-{number}"}, "spec": pinned})

    def verdicts():
        found = {}
        for pod in core.list_namespaced_pod(namespace).items:
            judged = [one.status for one in pod.status.conditions or [] if one.type == "PodScheduled"]
            found[pod.metadata.name] = judged[0] if judged else "?"
        return found if "?" not in found.values() and len(found) == len(cases) else None

    found = wait_for("a verdict on every pod", verdicts)
    wrong = [case for n, case in enumerate(cases) if (found[f"case-{n}"] == "True") != (case[2] == "")]
    assert [(title, less) for title, _, less in wrong] == []


def hosted_job(api, namespace):
    """A TrainingJob of the API server, with affinities, tolerations and limits for it to fill in around."""
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
    ]}}  # fmt: skip
    template = {
        "spec": {
            "containers": [
                container(limits={"cpu": "1", "memory": "1Gi"}),
                container("side", limits={"cpu": "100m", "memory": "9Mi"}),
            ],
            "affinity": {"nodeAffinity": affinity},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    }
    paths = {"spec.trainer.template": template, "spec.parameterServer.template": template}
    jobs = client.CustomObjectsApi(api)
    return jobs.create_namespaced_custom_object(namespace=namespace, body=make_job(**paths), **GROUP)


async def test_api_server_takes_what_is_built_and_it_reads_back(definition, nodes, api, door, namespace):
    """Every kind of object; pods as they were planned, after the API server's own defaults (parity of shapes)."""
    node, out = nodes(NodeShape(), NodeShape(labels={"edl.dev/opt-out": ""}))
    job = parse_job(hosted_job(api, namespace))
    planned = to_planner_job(job, priority=0)
    for kind, bodies in {
        SECRETS: build_secrets(job, issue_identity(job, datetime.now(UTC)), SETTINGS.etcd),
        SERVICES: [build_service(job)],
        DEPLOYMENTS: [build_master(job, SETTINGS)],
        DISRUPTION_BUDGETS: [build_budget(job, 4)],
    }.items():
        for body in bodies:
            await door.apply(kind, body)
            await door.apply(kind, body)  # again: nothing is in its own way
    names = (authority_secret(job.name), member_secret(job.name), master_secret(job.name))
    assert parse_identity(*[await door.get(SECRETS, name, namespace=namespace) for name in names]) is not None
    context = PodContext(jobs={job.uid: job.key}, masters={f"{namespace}/digits-master": job.uid})
    gated = await door.create(PODS, build_pod(job, placement(node=node), SETTINGS, is_gated=True))
    assert parse_pod(gated, context) is None
    surplus = placement(Role.TRAINER, ordinal=1, tier=Tier.SURPLUS, grade=3, node=node)
    made = await door.create(PODS, build_pod(job, surplus, SETTINGS, is_gated=False))
    server = await door.create(PODS, build_pod(job, placement(Role.SERVER, node=node), SETTINGS, is_gated=False))
    lifted = await door.patch(PODS, "digits-trainer-0", ungate_patch(gated, node), namespace=namespace)
    assert parse_pod(made, context).priority == -3
    for raw in (lifted, made):
        pod = parse_pod(raw, context)
        assert pod.shape == planned.trainer.shape
        assert pod.place == node
    assert parse_pod(server, context).shape == planned.servers.shape
    unwilling = placement(Role.TRAINER, ordinal=2, node=out)
    await door.create(PODS, build_pod(job, unwilling, SETTINGS, is_gated=False))
    found = {}
    core = client.CoreV1Api(api)
    wait_for(
        "three bound", lambda: bound(core, namespace) >= {"digits-trainer-0", "digits-trainer-1", "digits-server-0"}
    )
    wait_for("a controller has made the master's", lambda: made_by_controllers(core, namespace))
    for raw in (await door.list(PODS, Scope(namespace=namespace))).items:
        pod = parse_pod(raw, context)
        found[raw["metadata"]["name"]] = pod
    masters = [pod for name, pod in found.items() if name.startswith("digits-master-")]
    assert [(pod.role, pod.job, pod.shape) for pod in masters] == [(Role.MASTER, job.key, planned.master.shape)]
    assert found["digits-trainer-2"].phase is PodPhase.PENDING  # the node has opted out: the scheduler knows too
    assert found["digits-trainer-0"].node == node
    deployment = await door.get(DEPLOYMENTS, "digits-master", namespace=namespace)
    assert job_of_master(deployment) == job.uid
    assert parse_node(await door.get(NODES, node)).is_open()
    assert parse_job(await door.get(TRAINING_JOBS, "digits", namespace=namespace)) == job


def made_by_controllers(core, namespace):
    return [pod for pod in core.list_namespaced_pod(namespace).items if pod.metadata.generate_name]


def bound(core, namespace):
    return {pod.metadata.name for pod in core.list_namespaced_pod(namespace).items if pod.spec.node_name}


async def test_measured_throughput_is_stored_whole_and_read_by_the_next_leader(definition, api, door, namespace):
    """The definition keeps every field of `status.throughput`: what it did not know would be dropped without a word."""
    bench = OperatorBench()
    await bench.start()
    done = await train(bench, 2, 100.0)
    await train(bench, 3, 130.0, done=done)
    measured = bench.store.records[JOB].throughput
    report = throughput_status(measured, 3)
    assert set(report) == {"points", "setting", "curve", "worthwhile"}
    hosted_job(api, namespace)
    change = {"status": {"throughput": report}}
    await door.patch(TRAINING_JOBS, "digits", change, namespace=namespace, subresource=Subresource.STATUS)
    stored = (await door.get(TRAINING_JOBS, "digits", namespace=namespace))["status"]
    assert stored["throughput"] == report
    assert throughput_in_status(stored).log == measured.log
