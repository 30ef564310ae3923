"""Which web pods are created and which leave, and which GPUs a pod gets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.local.cluster.web_replicas import plan_web_replicas
from autoscaler.clusters.local.machine.gpus import choose, spread
from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.domain import PodPhase, Resources, Role, Tier
from autoscaler.jobs.restart_policy import LONGEST_PAUSE_S, pause_s
from autoscaler.manifests.api_types import PodTemplate

TEMPLATE = PodTemplate(
    container="web",
    command=("true",),
    env=(),
    working_dir=None,
    requests=Resources(cpu_milli=1000),
    container_port=None,
    grace_s=1.0,
    priority_class=None,
)


def web(ordinal, phase=PodPhase.READY, created_at_s=0.0):
    return LocalPod(
        name=f"web-{ordinal}",
        role=Role.EXTERNAL,
        tier=Tier.EXTERNAL,
        owner="web",
        ordinal=ordinal,
        template=TEMPLATE,
        priority=0,
        grace_s=1.0,
        created_at_s=created_at_s,
        log=Path("log"),
        phase=phase,
    )


def names(pods):
    return {pod.name for pod in pods}


def test_what_serves_nobody_leaves_first_then_the_youngest():
    """As the ReplicaSet controller."""
    pods = [web(0), web(1, created_at_s=5.0), web(2, PodPhase.PENDING), web(3, PodPhase.STARTING)]
    assert plan_web_replicas("web", 1, pods, names(pods)).stop == ("web-2", "web-3", "web-1")


def test_the_name_of_a_leaving_pod_is_not_used_again():
    """It still stands on its node."""
    pods = [web(0, PodPhase.TERMINATING), web(1)]
    assert plan_web_replicas("web", 3, pods, names(pods)).create == (2, 3)


@given(st.lists(st.sampled_from(list(PodPhase)), max_size=8), st.integers(0, 12))
def test_after_the_difference_there_are_as_many_as_wanted(phases, wanted):
    """Never both directions at once."""
    pods = [web(n, p) for n, p in enumerate(phases) if p is not PodPhase.GATED]
    difference = plan_web_replicas("web", wanted, pods, names(pods))
    standing = sum(not pod.is_leaving for pod in pods)
    assert standing + len(difference.create) - len(difference.stop) == wanted
    assert not (difference.create and difference.stop)
    assert not {f"web-{n}" for n in difference.create} & names(pods)


@given(st.integers(0, 64), st.integers(1, 16))
def test_devices_are_spread_evenly_and_each_once(devices, nodes):
    """Over virtual nodes, in order."""
    shares = spread(devices, nodes)
    assert [device for share in shares for device in share] == list(range(devices))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_pod_gets_devices_that_nobody_has():
    """A trainer's GPUs are its alone; the accounting never lets it come to less."""
    assert choose((4, 5, 6), {5}, 2) == (4, 6)
    with pytest.raises(ValueError, match="3 GPUs wanted, 2 free"):
        choose((4, 5, 6), {5}, 3)


def test_pauses_begin_at_once_and_end_at_half_a_minute():
    """0, 1, 2, 4, ... 30 s."""
    assert [pause_s(n) for n in range(9)] == [0, 0, 1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S]
    assert pause_s(10_000) == LONGEST_PAUSE_S
