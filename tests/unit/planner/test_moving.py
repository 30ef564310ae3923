"""Servers that move to where they waste least (ADR 0118)."""

from dataclasses import replace

import pytest

from autoscaler.domain import (
    Capabilities,
    Cause,
    CreatePod,
    DeletePod,
    History,
    PodPhase,
    Reason,
    Role,
    ServerSpec,
    Workload,
)
from autoscaler.planner import still_valid
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, shape, web

CAN = Capabilities(servers_elastic=True, moves_servers=True)


def with_server(name, **fields):
    """A job of trainers of 5 cores with one server of 4."""
    servers = ServerSpec(shape=shape(4_000), min_replicas=1, max_replicas=1, trainers_per_server=100)
    return replace(job(name, cpu_milli=5_000, high=9, **fields), servers=servers)


def after_the_tide(*names, policy=CALM, can=CAN, nodes=1):
    """Each job's server took 4 of the 10 cores of its node; where the web was, 9 cores are free for a trainer.

    There the server belongs: then two trainers fill its old node.
    """
    low = [node(f"low-{number}", 9_000) for number in range(nodes)]
    cluster = MemoryCluster([node(f"a-{name}", 10_000) for name in names] + low, [with_server(name) for name in names])
    cluster.capabilities = can
    for place in low:
        cluster.put(replace(web(f"web-{place.name}", 9_000), phase=PodPhase.READY, node=place.name))
    driver = Driver(cluster, replace(policy, server_moves_per_minute=0, server_moves_percent_per_minute=0))
    driver.settle()
    for place in low:
        cluster.lose(f"web-{place.name}")
    driver.settle()
    driver.policy = policy
    return driver


def servers(driver, name="j"):
    """Servers that stay, by their node."""
    return sorted(pod.node for pod in standing(driver, name) if pod.role is Role.SERVER)


def trainers(driver, name="j"):
    return sum(pod.role is Role.TRAINER for pod in standing(driver, name))


def standing(driver, name):
    return [p for p in driver.cluster.pods.values() if p.job == name and p.phase is not PodPhase.TERMINATING]


def test_server_goes_where_it_wastes_least_and_a_trainer_more_fits():
    """10 cores hold server and trainer, or two trainers; the 4 cores beside the other trainer held nobody."""
    driver = after_the_tide("j")
    assert (servers(driver), trainers(driver)) == (["a-j"], 2)
    driver.settle()
    assert (servers(driver), trainers(driver)) == (["low-0"], 3)


def test_new_one_stands_ready_before_the_old_one_leaves():
    """The job is never a server short; the plans say which takes the place of which, and what waits."""
    driver = after_the_tide("j")
    first = driver.turn()
    (come,) = first.actions
    assert (come.role, come.node, come.ordinal, come.replaces) == (Role.SERVER, "low-0", 1, "j-server-0")
    assert come.cause is Cause.DEFRAGMENTATION
    assert driver.turn().actions == ()  # it is not ready yet
    driver.cluster.advance(1.0)
    (leave,) = driver.turn().actions
    assert (leave.pod, leave.cause, leave.beneficiary) == ("j-server-0", Cause.DEFRAGMENTATION, "j-server-1")


def test_each_plan_says_what_it_does():
    """`edl why` shows the decision: a cause of its own, and where from and where to."""
    driver = after_the_tide("j")
    first = driver.turn()
    told = decision(first, "j")
    assert (told.reason, told.cause, told.target) == (Reason.MOVED, Cause.DEFRAGMENTATION, 2)
    assert told.message == "moves j-server-0 to low-0, where it wastes less"
    assert [wait.message for wait in first.waits if wait.job == "j"] == [
        "j-server-0 is removed once server 1 is ready on low-0"
    ]
    told = decision(driver.turn(), "j")
    assert (told.reason, told.message) == (Reason.KEPT, "j-server-0 is removed once server 1 is ready on low-0")
    driver.cluster.advance(1.0)
    told = decision(driver.turn(), "j")
    assert told.message == "removes 1 server from a-j: j-server-1 replaces it and wastes less"


def test_nothing_moves_back():
    """At rest the same view has the same answer, an hour later too."""
    driver = after_the_tide("j")
    driver.settle()
    for _ in range(6):
        driver.cluster.advance(600.0)
        assert driver.turn().actions == ()


@pytest.mark.parametrize(
    ("policy", "can"),
    [
        (CALM, Capabilities(servers_elastic=True)),
        (CALM, Capabilities(moves_servers=True)),
        (replace(CALM, server_moves_per_minute=0, server_moves_percent_per_minute=0), CAN),
        (replace(CALM, server_move_cost_s=301.0), CAN),  # two trainers stand still for what one brings in 600 s
        (replace(CALM, victim_age_s=1e6), CAN),
    ],
    ids=["adapter cannot move", "adapter cannot resize", "switched off", "costs more than it brings", "too young"],
)
def test_server_stays_where_it_may_not_move_or_that_does_not_pay(policy, can):
    """Each reason on its own."""
    driver = after_the_tide("j", policy=policy, can=can)
    driver.settle()
    assert (servers(driver), trainers(driver)) == (["a-j"], 2)


@pytest.mark.parametrize(("keeps", "place"), [(True, "a-j"), (False, "low-0")])
def test_server_moves_to_no_room_that_a_free_gpu_needs(keeps, place):
    """The node has a GPU by now, whose next trainer asks for 6 of the 9 cores there."""
    driver = after_the_tide("j", policy=replace(CALM, server_moves_per_minute=0, server_moves_percent_per_minute=0))
    driver.cluster.put(node("low-0", 9_000, gpu=1), node("g", 6_000, gpu=1), job("g", high=1, cpu_milli=6_000, gpu=1))
    driver.settle()
    assert driver.cluster.pods["g-trainer-0"].node == "g"
    driver.policy = replace(CALM, has_device_reserve=keeps)
    driver.settle()
    assert servers(driver) == [place]


def test_just_cheap_enough_it_moves():
    """The other side of the cost."""
    driver = after_the_tide("j", policy=replace(CALM, server_move_cost_s=299.0))
    driver.settle()
    assert servers(driver) == ["low-0"]


def test_nobody_moves_while_the_web_waits_or_falls():
    """A pod that waits for room, or a Deployment that is not at its level yet: no server is begun to be moved."""
    driver = after_the_tide("j")
    driver.cluster.put(web("w", 20_000), replace(web("v", 8_000), can_preempt=False))
    assert not [action for action in driver.turn().actions if action.cause is Cause.DEFRAGMENTATION]
    driver = after_the_tide("j")
    driver.cluster.put(Workload(name="shop", shape=shape(1_000), desired_replicas=0))
    driver.cluster.put(replace(web("s", 1), phase=PodPhase.READY, node="low-0", workload="shop"))
    assert driver.turn().actions == ()


def test_so_many_a_minute():
    """Two jobs, one move a minute: the second moves a minute later."""
    policy = replace(CALM, server_moves_per_minute=1, server_moves_percent_per_minute=0)
    driver = after_the_tide("i", "j", policy=policy, nodes=2)
    driver.settle()
    assert (servers(driver, "i"), servers(driver, "j")) == (["low-0"], ["a-j"])
    driver.cluster.advance(61.0)
    driver.settle()
    assert servers(driver, "j") == ["low-1"]


def test_one_that_does_not_get_ready_leaves_again():
    """After a minute; the old one has served all the time."""
    driver = after_the_tide("j")
    driver.turn()
    late = driver.cluster.pods["j-server-1"]
    driver.cluster.now_s += 61.0
    driver.cluster.put(replace(late, phase=PodPhase.STARTING))
    (leave,) = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert (leave.pod, leave.cause) == ("j-server-1", Cause.DEFRAGMENTATION)
    driver.settle()
    assert servers(driver) == ["a-j"], "it is not tried again at once"
    driver.cluster.advance(CALM.refusal_backoff_limit_s)
    driver.settle()
    assert servers(driver) == ["low-0"]


def test_whoever_plans_is_woken_when_a_move_may_begin_and_when_it_has_taken_too_long():
    """Time alone changes the answer then."""
    young = replace(CALM, victim_age_s=1e6)
    driver = after_the_tide("j", policy=young)
    born_at_s = driver.cluster.pods["j-server-0"].created_at_s
    planned = driver.plan()
    assert (planned.actions, planned.replan_at_s) == ((), born_at_s + 1e6)
    driver.policy = CALM
    begun = driver.turn()
    assert begun.replan_at_s == driver.cluster.now() + CALM.shortfall_limit_s


def test_one_that_has_failed_is_not_brought_again():
    """Its job pauses: it failed, or found its room taken, and would again."""
    driver = after_the_tide("j")
    driver.turn()
    driver.cluster.lose("j-server-1")
    held = replace(driver.cluster.jobs["j"], hold_until_s=driver.cluster.now() + 10.0)
    driver.cluster.put(held)
    assert driver.turn().actions == ()
    driver.cluster.advance(30.0)
    driver.cluster.put(replace(held, hold_until_s=0.0))
    driver.settle()
    assert (servers(driver), trainers(driver)) == (["a-j"], 2)


def test_one_to_which_state_is_moving_has_the_time_that_this_takes():
    """Giving up would cost what has been moved already, and that again."""
    driver = after_the_tide("j")
    driver.turn()
    settling = replace(driver.cluster.pods["j-server-1"], phase=PodPhase.STARTING, is_settling=True)
    driver.cluster.now_s += 600.0
    driver.cluster.put(settling)
    assert driver.turn().actions == ()
    driver.cluster.put(replace(settling, phase=PodPhase.READY, is_settling=False))
    (leave,) = driver.turn().actions
    assert leave.pod == "j-server-0"


def test_both_stay_where_both_are_wanted_meanwhile():
    """The ratio calls for one more: the move is over, once; who leaves later is told by the ratio, in its time."""
    driver = after_the_tide("j")
    driver.turn()
    before = driver.cluster.jobs["j"]
    wants = replace(before.servers, max_replicas=2, trainers_per_server=1)
    driver.cluster.put(replace(driver.cluster.pods["j-server-1"], replaces="j-server-0"))
    driver.cluster.put(replace(before, servers=wants))
    told = driver.turn()
    assert not [action for action in told.actions if action.role is Role.SERVER]
    assert (told.history.server_moves, [move.pod for move in told.history.moves_given_up]) == ((), ["j-server-0"])
    assert driver.turn().history.moves_given_up == told.history.moves_given_up, "once"
    driver.cluster.put(replace(before, servers=replace(wants, trainers_per_server=100)))
    told = driver.turn()
    assert told.history.server_moves == ()
    assert Cause.DEFRAGMENTATION not in {action.cause for action in told.actions}
    driver.cluster.advance(3_600.0)
    driver.settle()
    assert len(servers(driver)) == 1


def test_one_without_a_node_makes_way_for_the_web():
    """The scheduler has not bound it yet: what it was to have is others' at once, and nothing is lost."""
    driver = after_the_tide("j")
    driver.turn()
    waiting = replace(driver.cluster.pods["j-server-1"], phase=PodPhase.PENDING, node=None, nominated_node="low-0")
    driver.cluster.put(waiting)
    assert driver.turn().actions == (), "while nobody wants its room it waits for it"
    driver.cluster.put(web("w", 9_000))
    told = driver.turn()
    (leave,) = [action for action in told.actions if action.role is Role.SERVER]
    assert (leave.pod, leave.cause, leave.beneficiary) == ("j-server-1", Cause.DEFRAGMENTATION, "j-server-0")
    driver.settle()
    assert servers(driver) == ["a-j"]


@pytest.mark.parametrize("can", [CAN, Capabilities()], ids=["as before", "its servers stay where they are"])
def test_a_new_leader_goes_on_with_the_move_that_it_finds(can):
    """The new server says whose place it takes; the clock runs on from its creation."""
    driver = after_the_tide("j")
    driver.turn()
    driver.cluster.capabilities = can
    new = replace(driver.cluster.pods["j-server-1"], phase=PodPhase.STARTING, replaces="j-server-0")
    driver.history = History(since_s=driver.cluster.now())
    driver.cluster.put(new)
    first = driver.turn()
    assert first.actions == ()
    assert [move.pod for move in first.history.server_moves] == ["j-server-0"]
    driver.cluster.now_s += 61.0
    driver.cluster.put(new)
    driver.history = History(since_s=driver.cluster.now())
    told = driver.turn()
    (leave,) = told.actions
    assert leave.pod == "j-server-1"
    assert decision(told, "j").message == "gives up moving j-server-0: j-server-1 was not ready in time on low-0"


@pytest.mark.parametrize("lost", ["j-server-0", "j-server-1"])
def test_one_of_the_two_is_lost(lost):
    """The other one serves: the move is over or begins anew, and the job has its one server."""
    driver = after_the_tide("j")
    driver.turn()
    driver.cluster.lose(lost)
    driver.cluster.advance(1.0)
    assert len(servers(driver)) == 1
    driver.settle()
    assert (servers(driver), trainers(driver)) == (["low-0"], 3)


def test_forgotten_move_is_a_server_too_many():
    """A new leader knows nothing of it: one of the two leaves by the ratio, and the job comes to rest."""
    driver = after_the_tide("j")
    driver.turn()
    driver.history = History(since_s=driver.cluster.now())
    driver.cluster.advance(1.0)
    (leave,) = driver.turn().actions
    assert leave.cause is Cause.RATIO
    driver.settle()
    assert len(servers(driver)) == 1


def test_old_one_stays_if_the_new_one_is_not_there_any_more():
    """Between planning and writing: the deletion is dropped."""
    driver = after_the_tide("j")
    driver.turn()
    driver.cluster.advance(1.0)
    decided = driver.plan()
    driver.cluster.lose("j-server-1")
    assert still_valid(decided, driver.cluster.view(history=driver.history), driver.policy) == ()


def two_for_one(**fields):
    """8 cores hold one trainer or two servers; from each server's node of 10 another trainer comes."""
    names = ("i", "j")
    cluster = MemoryCluster(
        [*(node(f"a-{name}", 10_000) for name in names), node("full", 8_000)],
        [with_server(name, **fields) for name in names],
    )
    cluster.capabilities = CAN
    cluster.put(replace(web("w", 8_000), phase=PodPhase.READY, node="full"))
    driver = Driver(cluster, replace(CALM, server_moves_per_minute=0, server_moves_percent_per_minute=0))
    driver.settle()
    cluster.lose("w")
    driver.settle()
    assert trainers(driver, "i") + trainers(driver, "j") == 3
    driver.policy = CALM
    return driver


def test_two_servers_take_the_place_of_a_trainer():
    """The trainer leaves first, the servers come into its room, and there is one trainer more than before."""
    driver = two_for_one()
    first = driver.turn()
    (leave,) = first.actions
    assert (leave.role, leave.node, leave.cause) == (Role.TRAINER, "full", Cause.DEFRAGMENTATION)
    assert not [action for action in first.actions if isinstance(action, CreatePod)]
    driver.settle()
    assert (servers(driver, "i"), servers(driver, "j")) == (["full"], ["full"])
    assert trainers(driver, "i") + trainers(driver, "j") == 4


def test_trainer_does_not_leave_for_servers_if_its_jobs_resize_costs_more():
    """One trainer more brings 600 trainer-seconds in ten minutes; the two of its job would wait for longer."""
    driver = two_for_one(resize_pause_s=305.0)
    assert not [action for action in driver.turn().actions if action.cause is Cause.DEFRAGMENTATION]
