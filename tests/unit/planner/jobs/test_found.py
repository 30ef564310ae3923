"""What the properties found, pinned: one case each."""

from dataclasses import replace

from autoscaler.domain import (
    Admission,
    Capabilities,
    DemandState,
    Headroom,
    LabelOperator,
    Node,
    PodPhase,
    Requirement,
    Resources,
    Role,
    Shape,
    Workload,
)
from autoscaler.planner.counterfactual import ChangeKind, PlanInputs, explain
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, demand, job, node, shape, web


def test_class_that_is_finished_first_leaves_headroom_alone():
    """`StrictClass`, a waiting gang of a lower class: surplus of the higher one does not come and go with headroom."""
    kept = replace(CALM, admission=Admission.STRICT_CLASS, headroom=(Headroom(shape=shape(500), count=1),))
    upper = job("upper", low=1, high=2, cpu_milli=500, priority=5)
    driver = Driver(MemoryCluster([node("a", 1_000)], [job("lower", low=1, high=1, gpu=1), upper]), kept)
    assert decision(driver.settle(), "upper").now == 1
    assert demand(driver.plan(), "headroom-0-0").state is DemandState.CAPACITY_FREE


def test_servers_beyond_the_minimum_follow_a_start_as_it_said():
    """A5: two trainers need two servers, the gang starts with one, and the plan says that another one follows."""
    spec = job("j", low=2, high=2, servers=1)
    spec = replace(spec, servers=replace(spec.servers, max_replicas=2, trainers_per_server=1))
    cluster = MemoryCluster([node("a")], [spec])
    cluster.capabilities = Capabilities(servers_elastic=True)
    driver = Driver(cluster, CALM)
    first = driver.turn()
    assert [(wait.job, wait.message) for wait in first.waits] == [("j", "1 server more once it runs")]
    assert [action.role for action in driver.plan().actions] == [Role.SERVER]


def test_node_that_would_help_carries_the_label_that_affinity_asks_for():
    """A8: no node has the label, so the answer is a node with it."""
    spec = job("j")
    wanted = Requirement(key="disk", operator=LabelOperator.IN, values=("fast",))
    spec = replace(spec, trainer=replace(spec.trainer, shape=replace(spec.trainer.shape, node_terms=((wanted,),))))
    moment = PlanInputs(view=MemoryCluster([node("a")], [spec]).view(), policy=CALM, now_s=1_000.0)
    answers = explain(moment, "j").answers
    assert [answer.changes[0].like.labels for answer in answers] == [frozenset({("disk", "fast")})]


def test_pin_at_the_largest_size_has_to_go_together_with_the_maximum():
    """A8: without the pin the job stays at its maximum, and a larger maximum leaves it at its pin."""
    driver = Driver(MemoryCluster([node("a", 8_000)], [job("j", high=2, pinned=2)]), CALM)
    driver.settle()
    (answer,) = explain(PlanInputs(view=driver.cluster.view(), policy=CALM, now_s=driver.cluster.now()), "j").answers
    assert ([change.kind for change in answer.changes], answer.size) == ([ChangeKind.PIN, ChangeKind.MAX], 3)


def test_minimum_is_refilled_though_no_growth_would_pay_any_more():
    """A job that is nearly done and lacks a trainer: the plan ends, refills it, and grows it no further."""
    policy = replace(CALM, payoff_s=60.0)
    driver = Driver(MemoryCluster([node("a", 8_000)], [job("j", low=2, high=4, pinned=2)]), policy)
    driver.settle()
    lost = next(name for name, pod in driver.cluster.pods.items() if pod.role is Role.TRAINER)
    del driver.cluster.pods[lost]
    driver.cluster.jobs["j"] = replace(job("j", low=2, high=4), remaining_s=0.0)
    assert [action.role for action in driver.plan().actions] == [Role.TRAINER]


def test_pod_that_never_comes_does_not_move_when_a_trainer_comes():
    """Announced growth took the other node once a trainer stood on its own; headroom then went after the trainer."""
    gib = 1 << 30
    kept = replace(CALM, headroom=(Headroom(shape=shape(2_000), count=2),))
    small = Shape(requests=Resources(cpu_milli=500, memory_bytes=gib // 2))
    announced = Workload(name="w", shape=small, priority=5, desired_replicas=1)
    rooms = {"a": (2_000, 1, 0), "b": (5_000, 4, 3_000), "c": (6_500, 2, 2_000)}  # cpu, GiB, cpu of others
    nodes = [
        Node(name=name, allocatable=Resources(cpu_milli=cpu_milli, memory_bytes=held * gib))
        for name, (cpu_milli, held, _) in rooms.items()
    ]
    others = [
        replace(web(f"on-{name}", taken), node=name, phase=PodPhase.READY, unschedulable_since_s=None)
        for name, (_, _, taken) in rooms.items()
    ]
    spec = job("j", low=1, high=6)
    trainer = Shape(requests=Resources(cpu_milli=2_000, memory_bytes=gib // 4))
    spec = replace(spec, trainer=replace(spec.trainer, shape=trainer))
    driver = Driver(MemoryCluster(nodes, [spec], [announced], others), kept)
    seen = []
    for _ in range(8):
        decided = driver.turn()
        driver.cluster.advance(3.0)
        seen.append((decision(decided, "j").target, demand(decided, "w+1").node))
    assert set(seen[3:]) == {(2, "c")}, seen


def test_lost_one_of_a_pair_of_surplus_comes_back_beside_its_other_half():
    """On another node both halves would be of no use, though that one is as tight and has the first name."""
    spec = job("j", low=2, high=4, step=2)
    spec = replace(spec, trainer=replace(spec.trainer, per_node=2))
    driver = Driver(MemoryCluster([node("a", 2_000), node("b", 2_000)], [spec]), CALM)
    driver.settle()
    driver.cluster.put(node("0", 1_000))
    lost = driver.cluster.pods["j-trainer-3"]
    driver.cluster.lose(lost.name)
    assert [action.node for action in driver.plan().actions] == [lost.node]
