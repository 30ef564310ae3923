"""Deployments on the local cluster: real web servers that come, serve, wait, restart and leave."""

import asyncio
import signal
import sys
import urllib.request

from autoscaler.domain import PodPhase, Resources
from tests.integration.clusters.local.local_cluster import nodes, running, wait_until, web


def ready(cluster):
    return [p for p in cluster.table.pods.values() if p.phase is PodPhase.READY]


async def test_a_replica_is_ready_when_its_port_answers(tmp_path):
    """Each has a port of its own, and its name."""
    async with running(tmp_path) as cluster:
        cluster.deploy(web(replicas=2), priority=0)
        await wait_until(cluster, lambda: len(ready(cluster)) == 2, "two ready web pods")
        answers = set()
        for pod in ready(cluster):
            reply = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{pod.port}/", timeout=60)
            answers.add(reply.read().decode())
            reply.close()
        assert answers == {"web-0", "web-1"}


async def test_replicas_that_fit_nowhere_wait_unschedulable_until_there_is_room(tmp_path):
    """That verdict is the planner's demand; room is taken as soon as a pod is gone."""
    async with running(tmp_path, on=nodes(1, cpu_milli=2000)) as cluster:
        cluster.deploy(web(replicas=3), priority=0)
        await wait_until(cluster, lambda: len(ready(cluster)) == 2, "two ready web pods")
        (waiting,) = [p for p in (await cluster.observe()).pods if p.phase is PodPhase.PENDING]
        assert waiting.unschedulable_since_s is not None
        cluster.kill("web-0")  # restarts in place, keeps its room
        cluster.scale("web", 2)
        await wait_until(cluster, lambda: len(cluster.table.pods) == 2 and len(ready(cluster)) == 2, "two pods left")


async def test_a_crashed_replica_restarts_in_place_at_once_then_with_a_pause(tmp_path):
    """At most one quick restart; a loop of crashes does not burn the machine."""
    async with running(tmp_path) as cluster:
        cluster.deploy(web(command=(sys.executable, "-c", "print('no such table'); raise SystemExit(7)")), priority=0)
        await wait_until(cluster, lambda: cluster.table.pods["web-0"].starts >= 2, "a restart")
        await wait_until(cluster, lambda: "CrashLoopBackOff" in cluster.table.pods["web-0"].waiting, "a pause")
        stories = [e.message for e in cluster.recorder.events if e.object == "pod/web-0" and e.reason == "Restarting"]
        assert "exited with 7" in stories[0]
        assert "no such table" in stories[0]
        assert cluster.table.pods["web-0"].node is not None
        cluster.delete_deployment("web")
        await wait_until(cluster, lambda: not cluster.table.pods, "the end of a pod that waits for its restart")


async def test_a_pod_that_dies_as_the_run_ends_is_not_started_again(tmp_path):
    """Its process would be asked of a supervisor that is leaving: the run's end was told as a crash."""
    async with running(tmp_path) as cluster:
        cluster.deploy(web(), priority=0)
        await wait_until(cluster, lambda: ready(cluster), "a ready web pod")
        pod = cluster.table.pods["web-0"]
        await cluster.runtime.close()
        cluster.kill("web-0")
        await wait_until(cluster, lambda: not cluster.runtime.processes.is_running(pod.key), "its end")
        assert cluster.table.pods["web-0"].pid == pod.pid, "it waits for another start"


async def test_what_ignores_sigterm_is_killed_after_its_grace(tmp_path):
    """And stands on its node until it is gone (A2)."""
    script = "import signal,time;signal.signal(15,signal.SIG_IGN);print('deaf',flush=True);time.sleep(100)"
    async with running(tmp_path) as cluster:
        cluster.deploy(web(port=None, command=(sys.executable, "-c", script)), priority=0)
        log = cluster.recorder.folder.log_of("web-0")
        await wait_until(cluster, lambda: log.exists() and "deaf" in log.read_text(), "its first word")
        cluster.leave("web-0", why="test", grace_s=0.3)
        (pod,) = [p for p in (await cluster.observe()).pods if p.name == "web-0"]
        assert (pod.phase, pod.node) == (PodPhase.TERMINATING, "node-1" if pod.node == "node-1" else "node-2")
        await wait_until(cluster, lambda: "web-0" not in cluster.table.pods, "its end")
        assert any(e.reason == "GraceOver" for e in cluster.recorder.events)


async def test_a_drained_node_is_emptied_of_web_pods(tmp_path):
    """Others are created elsewhere."""
    async with running(tmp_path) as cluster:
        cluster.deploy(web(replicas=4), priority=0)
        await wait_until(cluster, lambda: len(ready(cluster)) == 4, "four ready web pods")
        cluster.drain_node("node-1")
        await wait_until(cluster, lambda: {p.node for p in ready(cluster)} == {"node-2"} and len(ready(cluster)) == 4)


async def test_the_room_is_never_overbooked_while_pods_come_and_go(tmp_path):
    """Requests of bound and leaving pods stay within each node at every change (A2)."""
    capacity = Resources(cpu_milli=2000, memory_bytes=8 << 30, extended=(("pods", 20),))
    async with running(tmp_path, on=nodes(2, cpu_milli=2000)) as cluster:
        cluster.deploy(web(port=None, command=("sleep", "100")), priority=0)
        for replicas in (6, 1, 4, 0, 5):
            cluster.scale("web", replicas)
            for _ in range(10):
                await cluster.table.wait_for_change(0.05)
                for node in cluster.table.nodes:
                    used = [p.template.requests for p in cluster.table.pods.values() if p.node == node]
                    assert sum(used, Resources()).fits_into(capacity)


async def test_a_killed_replica_is_told_with_its_signal(tmp_path):
    """Who reads the events knows what happened."""
    async with running(tmp_path) as cluster:
        cluster.deploy(web(), priority=0)
        await wait_until(cluster, lambda: len(ready(cluster)) == 1)
        assert cluster.kill("web-0", signal.SIGKILL)
        await wait_until(cluster, lambda: cluster.table.pods["web-0"].starts == 2 and len(ready(cluster)) == 1)
        assert any("was killed by SIGKILL" in e.message for e in cluster.recorder.events)
