"""The whole product on real nodes: the chart, its etcd, its operators, and the examples under every fault."""

import contextlib
import datetime as dt
import re

import pytest

from tests.e2e.conftest import NODES
from tests.e2e.day import END_BUDGET_S, Day
from tests.e2e.network import cut_off
from tests.e2e.node_fillers import NodeFillers
from tests.e2e.pods import make_pod
from tests.e2e.product import MEMBERS, NAMESPACE, SLOTS_PER_NODE
from tests.e2e.torch_group import group_manifest, lacking
from tests.harness.errors import HarnessError

pytestmark = pytest.mark.timeout(2700)  # faults are waited for, on a busy machine
EPOCHS = 40
GROUP_EPOCHS = 80
EPOCH_REPORT = re.compile(r"^epoch (\d+)  trainers (\d+)", re.MULTILINE)  # of examples/digits_torch_ledger.py
DRAIN_BUDGET_S = 600
MOST = 4
WEB = len(NODES) * SLOTS_PER_NODE - MOST


@pytest.fixture
def day(product, real_cluster, api, pods, namespace, checkpoints):
    return Day(real_cluster.control_plane, api, namespace, checkpoints)


def test_the_chart_passes_its_own_test(product):
    assert "Phase:          Succeeded" in product.test()


def test_etcd_has_all_members_and_lets_nobody_do_anything(product):
    assert product.ask_etcd("member", "list", user="root").count("started") == MEMBERS
    assert "masters" not in product.ask_etcd("user", "list", user="root").split()  # each job has a user of its own
    with pytest.raises(HarnessError, match="user name is empty"):
        product.ask_etcd("get", "--prefix", "/edl/v1/jobs/")


def test_training_makes_way_is_killed_at_every_place_and_trains_each_digit_once_an_epoch(
    day, product, real_cluster, edl
):
    day.begin(epochs=3 * EPOCHS, trainers=MOST, web=WEB)
    day.wait_trainers(MOST)

    day.scale_web(WEB + 2)  # the web grows: surplus is preempted
    day.wait_trainers(MOST - 2)
    day.wait_told_who_made_way()
    day.scale_web(WEB)
    day.wait_trainers(MOST)
    day.wait_told("FreeCapacity", by="edl")

    before = day.trainers()
    victim = max(before)
    real_cluster.kill(day.namespace, victim)
    day.wait(
        "another trainer in its place", lambda: set(map(uid, day.trainers().values())) - set(map(uid, before.values()))
    )
    day.wait_told("TrainerFailed", by="failure")
    day.wait_trainers(MOST)

    led = product.leader()
    restarts = product.restarts(led)
    real_cluster.kill(NAMESPACE, led)
    day.wait("the operator is started again", lambda: product.restarts(led) > restarts)
    day.scale_web(WEB + 1)
    day.wait_trainers(MOST - 1)
    day.scale_web(WEB)
    day.wait_trainers(MOST)

    (master,) = day.pods("master")
    real_cluster.kill(day.namespace, master)
    killed_at = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    day.wait("another checkpoint", lambda: (day.status("progress", "lastCheckpointTime") or "") > killed_at)
    day.wait_trainers(MOST)

    assert day.kubectl("get", "tj", "digits", "--no-headers").split()[:4] == ["digits", str(MOST), "2", str(MOST)]
    day.wait_events("Started", "Grown", "TrainerFailed")
    assert "digits" in edl("get", "tj")
    assert f"digits has {MOST} trainers" in edl("why", "tj/digits")
    assert "TrainerFailed" in edl("events")
    assert not day.is_over(), "the day was too short for its faults"
    day.hurry()
    edl("wait", "--for=condition=Completed", "tj/digits", "--timeout", f"{END_BUDGET_S:.0f}s")
    day.end()


def test_both_roles_grow_and_shrink_while_it_trains(day, real_cluster, edl):
    """Servers follow the trainers, are scaled by hand, told to leave, killed; only the kill costs work done twice."""
    day.begin(epochs=5 * EPOCHS, trainers=MOST, web=WEB)
    day.wait_trainers(MOST)
    day.wait_servers(2)  # one for every two trainers
    lineage = day.status("progress", "lineage")

    edl("scale", "tj/digits", "--servers", "3")
    day.wait_servers(3)
    edl("scale", "tj/digits", "--servers", "1")
    day.wait_servers(1)
    edl("scale", "tj/digits", "--servers", "0")
    day.wait_servers(2)

    day.scale_web(WEB + 2)
    day.wait_trainers(MOST - 2)
    day.wait_servers(1)
    day.scale_web(WEB)
    day.wait_trainers(MOST)
    day.wait_servers(2)

    told_to_leave = uid(day.pods("server")["digits-server-0"])
    day.kubectl("delete", "pod", "digits-server-0", "--wait=false")
    day.wait("another server in its place", lambda: told_to_leave not in map(uid, day.pods("server").values()))
    day.wait_servers(2)
    assert day.status("progress", "lineage") == lineage, "a resize has rolled the job back"

    # The younger one may still wait for its share, and costs nothing then; this one has what digits-server-0 gave.
    real_cluster.kill(day.namespace, min(day.pods("server")))
    day.wait("a roll-back", lambda: day.status("progress", "lineage") > lineage)
    day.wait_told("ServerFailed", by="failure", role="server")
    day.wait_servers(2)

    day.wait_events("ServerDraining", "ServerLeft", "ServerFailed")
    assert not day.is_over(), "the day was too short for its faults"
    day.end()


def test_a_killed_server_costs_no_work_where_another_has_second_copies(day, real_cluster):
    """One on each node; the other one goes on at once, and what comes in the lost one's place gets second copies."""
    day.begin(epochs=2 * EPOCHS, trainers=MOST, web=WEB, copies=2)
    day.wait_trainers(MOST)
    day.wait_servers(2)
    day.wait("two copies of each bucket", lambda: copies(day) == (2, 0))
    assert sorted(server_nodes(day).values()) == sorted(NODES)
    lineage = day.status("progress", "lineage")

    killed = uid(day.pods("server")["digits-server-1"])
    real_cluster.kill(day.namespace, "digits-server-1")
    day.wait("the other goes on", lambda: any(is_promotion(event, to="digits-server-0") for event in day.events()))
    day.wait_told("ServerFailed", by="failure", role="server")
    day.wait("another server in its place", lambda: killed not in map(uid, day.pods("server").values()))
    day.wait_servers(2)
    day.wait("two copies again", lambda: copies(day) == (2, 0))
    assert sorted(server_nodes(day).values()) == sorted(NODES)
    assert day.status("progress", "lineage") == lineage, "a loss with a second copy has rolled the job back"
    assert "RolledBack" not in day.event_reasons()
    assert not day.is_over(), "the day was too short for its loss"
    day.end()


def copies(day):
    """How many are wanted, and how many buckets have one."""
    return day.status("servers", "copies"), day.status("servers", "singleCopies")


def is_promotion(event, *, to):
    reason, words = event
    return reason == "ServerLost" and to in words and "second copies" in words


@pytest.fixture
def moving_servers(product):
    """Operators that move servers; those of other tests leave them where they stand, as they do by default."""
    product.upgrade("operator.moveServers=true")
    yield
    product.upgrade("operator.moveServers=false")


@pytest.mark.usefixtures("moving_servers")
def test_a_server_moves_to_the_node_where_it_wastes_least_while_it_trains(day, pods, core):
    """Slots of 300: left holds the server (150) and one, or two; right, without the web load, one and the server."""
    left, right = NODES
    fillers = NodeFillers(pods, core)
    fillers.leave(left, 640)
    fillers.leave(right, 490, load=450)
    day.begin(epochs=2 * EPOCHS, trainers=MOST, web=0, least=1, most_servers=1, server="150m")
    assert server_nodes(day) == {"digits-server-0": left}
    lineage = day.status("progress", "lineage")

    fillers.remove_load()
    day.wait_trainers(2)
    day.wait("the server stands on the other node", lambda: server_nodes(day) == {"digits-server-1": right})
    day.wait_told("Defragmentation", by="edl", role="server")
    day.wait_servers(1)
    day.wait_trainers(3)
    assert day.status("progress", "lineage") == lineage, "a move has rolled the job back"
    day.wait_events("Moved", "ServerLeft")
    assert not {"ServerLost", "ServerFailed", "TrainerFailed"} & day.event_reasons()
    assert not day.is_over(), "the day was too short for its move"
    day.end()


def server_nodes(day):
    return {name: pod.spec.node_name for name, pod in day.pods("server").items()}


@pytest.fixture
def torch_in_containers(pods):
    version = ["python", "-c", "import sys; print('{}.{}'.format(*sys.version_info))"]
    code, image_python = pods.finish(make_pod("version", "trainer", version))
    assert code == 0, image_python
    if missing := lacking(image_python.strip()):
        pytest.skip(missing)


@pytest.mark.usefixtures("torch_in_containers")
def test_a_torch_group_makes_way_loses_a_node_and_trains_each_digit_once_an_epoch(day, product):
    """While a node is cut off, its members are given up and the others train on; once it is back, so are they."""
    lost, left = sorted(NODES, key=product.count_etcd_members)  # etcd needs the node that has most of its members
    day.start(group_manifest(epochs=GROUP_EPOCHS, most=MOST, master_node=left), epochs=GROUP_EPOCHS, web=WEB)
    day.wait_trainers(MOST)

    day.scale_web(WEB + 2)
    day.wait_trainers(MOST - 2)
    day.scale_web(WEB)
    day.wait_trainers(MOST)
    nodes = {name: pod.spec.node_name for name, pod in day.trainers().items()}
    others = [name for name, node in nodes.items() if node == left]
    assert 0 < len(others) < MOST, nodes
    day.wait("all train together", lambda: last_epoch(day, nodes)[1] == MOST)

    cut_in, _ = last_epoch(day, nodes)
    with cut_off(lost):
        day.wait("the others train on", lambda: is_reported(last_epoch(day, others), after=cut_in, size=len(others)))
        before = day.trained()
        day.wait("a checkpoint without the lost node", lambda: day.trained() > before)
    day.wait("all train together again", lambda: last_epoch(day, nodes)[1] == MOST)
    day.wait_trainers(MOST)
    day.end()


def is_reported(epoch, *, after, size):
    return epoch[0] > after and epoch[1] == size


def last_epoch(day, trainers):
    """Number and group size of the last epoch that one of these trainers has reported, as the leader."""
    said = ""
    for name in trainers:
        with contextlib.suppress(HarnessError):  # it has been given up, and is gone
            said += day.kubectl("logs", name) + "\n"
    return max(((int(epoch), int(size)) for epoch, size in EPOCH_REPORT.findall(said)), default=(-1, 0))


def test_a_drained_node_costs_no_digit(day, real_cluster):
    """Pods are evicted one by one under the job's own budget, and etcd's members and an operator with them."""
    plane = real_cluster.control_plane
    day.begin(epochs=4 * EPOCHS, trainers=MOST, web=3)
    day.wait_trainers(MOST)
    drained = day.pods("trainer")["digits-trainer-0"].spec.node_name
    try:
        plane.kubectl("drain", drained, "--delete-emptydir-data", "--ignore-daemonsets", budget_s=DRAIN_BUDGET_S)
        assert drained not in day.places()
        day.wait_trainers(SLOTS_PER_NODE - 3)
    finally:
        plane.kubectl("uncordon", drained)
    day.wait_trainers(MOST)
    day.end()


def test_a_damaged_checkpoint_is_told_and_gone_on_from_as_the_definition_says(day):
    """First by hand, with the field that names a checkpoint; then by itself, with the one that lets it fall back."""
    day.begin(epochs=2 * EPOCHS, trainers=2, web=1)
    day.wait("two checkpoints", lambda: day.kept("retired-"))
    damaged = suspended_and_damaged(day)
    before = day.kept("retired-")
    day.change(runPolicy={"suspend": False})
    day.wait("told which file", lambda: day.is_told("Progressing", "False", damaged.name))
    assert before == day.kept("retired-"), "nothing is changed before somebody has said what to do"
    suspend(day)
    chosen = before[0].name.removeprefix("retired-").removesuffix(".json")
    day.change(runPolicy={"suspend": False}, checkpoint={"start": chosen})
    day.wait("it goes on", lambda: day.is_told("Progressing", "True", ""))
    day.wait("what was damaged stands aside", lambda: day.kept(f"aside/*/{damaged.name}"))
    day.wait("two checkpoints", lambda: day.kept("retired-"))

    damaged = suspended_and_damaged(day)
    day.change(runPolicy={"suspend": False}, checkpoint={"whenUnreadable": "FallBack"})
    day.wait("it falls back", lambda: "FellBack" in day.event_reasons())
    day.wait("what was damaged stands aside", lambda: day.kept(f"aside/*/{damaged.name}"))
    day.end()


def suspend(day):
    """Until all pods have left, and the status says that it has not begun: from then on its start may be changed."""
    day.change(runPolicy={"suspend": True})
    day.wait("all pods have left", lambda: not any(map(day.pods, ("trainer", "server", "master"))))
    day.wait("it counts as not begun", lambda: not day.status("startTime"))


def suspended_and_damaged(day):
    """The manifest that HEAD names, which is cut short while nobody is there."""
    suspend(day)
    (head,) = day.kept(f"manifest-{day.kept('HEAD')[0].read_text().strip()}")
    head.write_bytes(head.read_bytes()[:-20])
    return head


def test_jobs_and_their_definition_outlive_the_release(day, product, real_cluster):
    """Nothing of a job's goes with the operators; another installation finds its etcd again and leads it to its end."""
    day.begin(epochs=2 * EPOCHS, trainers=MOST, web=2)
    day.wait_trainers(MOST)
    before = set(map(uid, day.trainers().values()))
    product.uninstall()
    real_cluster.control_plane.kubectl("get", "crd", "trainingjobs.edl.dev")
    day.wait("the same trainers are at work", lambda: set(map(uid, day.trainers().values())) == before)
    product.install()
    day.end()


def uid(pod):
    return pod.metadata.uid
