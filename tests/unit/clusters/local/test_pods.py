"""Pods of the local cluster: which process is meant."""

from dataclasses import replace
from pathlib import Path

from autoscaler.clusters.local.pods.local_pod import LocalPod
from autoscaler.domain import PodPhase, Resources, Role, Tier
from autoscaler.manifests.api_types import PodTemplate

SERVER = LocalPod(
    name="digits-server-1",
    role=Role.SERVER,
    tier=Tier.CORE,
    owner="digits",
    ordinal=1,
    template=PodTemplate(
        container="server",
        command=("true",),
        env=(),
        working_dir=None,
        requests=Resources(cpu_milli=500),
        container_port=None,
        grace_s=1.0,
        priority_class=None,
    ),
    priority=0,
    grace_s=1.0,
    created_at_s=2.5,
    log=Path("log"),
    phase=PodPhase.STARTING,
    starts=1,
)


def test_a_pod_that_comes_again_under_its_name_is_another_process():
    """What was heard of a server that has left says nothing of the next: that one has as long to start as any."""
    again, restarted = replace(SERVER, created_at_s=42.5), replace(SERVER, starts=2)
    assert len({SERVER.key, again.key, restarted.key}) == 3
    assert {one.key.rpartition("#")[0] for one in (SERVER, again, restarted)} == {SERVER.name}
