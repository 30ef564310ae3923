"""EDL beside the real kube-scheduler: gangs, growth, the web's rise and fall, in both modes of reclaim."""

import pytest
from kubernetes import client

from autoscaler.domain import PodPhase, Policy, Reclaim, Role
from tests.cluster.autoscaling import Autoscaling, trainers
from tests.cluster.kwok_nodes import NodeShape
from tests.cluster.trainingjobs import GROUP
from tests.cluster.workloads import installed, job_of, web_of


@pytest.fixture
def ground(control_plane, api):
    """The definition of TrainingJob and EDL's classes."""
    with installed(control_plane, api):
        yield control_plane


def web_running(view, name):
    return [pod for pod in view.pods if pod.workload == name and pod.phase is PodPhase.READY]


@pytest.mark.asyncio
@pytest.mark.parametrize("reclaim", list(Reclaim))
async def test_training_fills_what_the_web_leaves(ground, api, namespace, nodes, reclaim):
    nodes(*[NodeShape(cpu="4", memory="16Gi")] * 4)
    custom, apps = client.CustomObjectsApi(api), client.AppsV1Api(api)
    job, web = f"{namespace}/digits", f"{namespace}/web"
    policy = Policy(
        reclaim=reclaim,
        up_window_s=0.5,
        down_window_s=1.0,
        quiet_window_s=0.2,
        surplus_grace_s=2.0,
        preempted_pause_s=2.0,
        victim_age_s=0.0,
    )
    async with Autoscaling(ground.kubeconfig, policy) as edl:
        custom.create_namespaced_custom_object(namespace=namespace, body=job_of("digits"), **GROUP)
        full = await edl.wait("16 cpu filled", lambda view: len(trainers(view, job)) == 14)
        masters = [pod for pod in full.pods if pod.job == job and pod.role is Role.MASTER]
        assert [pod.phase for pod in masters] == [PodPhase.READY]

        apps.create_namespaced_deployment(namespace, web_of("web", replicas=5))
        await edl.wait("the web runs", lambda view: len(web_running(view, web)) == 5)
        await edl.wait("room shared", lambda view: len(trainers(view, job)) == 9)

        apps.delete_namespaced_deployment("web", namespace)
        await edl.wait("training takes the room back", lambda view: len(trainers(view, job)) == 14)
        custom.delete_namespaced_custom_object(name="digits", namespace=namespace, **GROUP)
        await edl.wait("gone", lambda view: not any(pod.job == job for pod in view.pods))
    assert [problem for problem in edl.problems if "is taken" not in problem] == []
