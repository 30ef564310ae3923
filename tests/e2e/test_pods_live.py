"""A container's life on a real node: what the KWOK nodes of tests/cluster only play."""

import pytest

from tests.e2e.conftest import NODES
from tests.e2e.pods import make_pod
from tests.harness.waiting import wait_for

UNHURRIED = "trap 'echo told; sleep 1; echo done; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.mark.parametrize("node", NODES)
def test_a_container_runs_on_each_node(pods, node):
    """It says something, can be entered, and ends with its own code."""
    until_asked = "echo hello; until [ -e /tmp/end ]; do sleep 0.1; done; exit 3"
    name = pods.run(make_pod(f"on-{node}", "busybox", ["sh", "-c", until_asked], nodeName=node))
    assert pods.execute(name, "hostname").strip() == name
    pods.execute(name, "touch", "/tmp/end")
    assert pods.wait_end(name) == 3
    assert pods.logs(name) == "hello\n"


def test_a_deleted_pod_is_told_and_may_finish(pods):
    """SIGTERM reaches the program, which has its grace: this is how a trainer drains."""
    name = pods.run(make_pod("patient", "busybox", ["sh", "-c", UNHURRIED], terminationGracePeriodSeconds=20))
    wait_for("it listens", lambda: "ready" in pods.logs(name))
    follower = pods.follow(name)
    wait_for("it is followed", lambda: "ready" in follower.said())
    pods.delete(name)
    assert follower.wait_end() == "ready\ntold\ndone\n"


def test_a_pod_that_does_not_listen_is_killed_at_the_end_of_its_grace(pods):
    name = pods.run(make_pod("stubborn", "busybox", ["sh", "-c", STUBBORN], terminationGracePeriodSeconds=1))
    wait_for("it is deaf", lambda: "ready" in pods.logs(name))
    pods.delete(name)
    wait_for("it is gone", lambda: not pods.exists(name))


def test_a_container_over_its_memory_is_killed_for_that(pods):
    """The limit is the container's: the node and the machine have room."""
    greedy = make_pod(
        "greedy",
        "trainer",
        ["python", "-c", "print('starts', flush=True); len(bytearray(256 << 20))"],
        container={"resources": {"limits": {"memory": "64Mi", "cpu": "1"}}},
    )
    name = pods.create(greedy)
    assert pods.wait_end(name) == 137
    assert pods.ended(name).reason == "OOMKilled"


def test_a_container_gets_no_more_processor_than_its_limit(pods):
    """0.4 s of work at 200m take two: the kernel holds the container to its quota."""
    code = (
        "import time; start = time.monotonic()\nwhile time.process_time() < 0.4: pass\nprint(time.monotonic() - start)"
    )
    limited = make_pod(
        "slow",
        "trainer",
        ["python", "-c", code],
        container={"resources": {"limits": {"cpu": "200m", "memory": "128Mi"}}},
    )
    code, said = pods.finish(limited)
    assert code == 0
    assert float(said) > 1.0


def test_both_nodes_have_the_shared_folder(pods):
    """What a trainer writes on one node, a server reads on the other: the checkpoints' place."""
    volume = {"name": "shared", "hostPath": {"path": "/shared", "type": "Directory"}}
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    left, right = NODES
    writer = make_pod(
        "writer", "busybox", ["sh", "-c", "echo kept > /shared/note"], container=mount, volumes=[volume], nodeName=left
    )
    reader = make_pod("reader", "busybox", ["cat", "/shared/note"], container=mount, volumes=[volume], nodeName=right)
    assert pods.finish(writer)[0] == 0
    assert pods.finish(reader) == (0, "kept\n")
