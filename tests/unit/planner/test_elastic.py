"""Parameter servers that come and go with the trainers, where the cluster can move their state."""

from dataclasses import replace

import pytest

from autoscaler.domain import Capabilities, Cause, CreatePod, DeletePod, PodPhase, Reason, Role, ServerSpec
from autoscaler.errors import InvalidSpecError
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, shape, web


def elastic(name, *, low=2, high=8, most=4, ratio=2, pinned=0):
    servers = ServerSpec(
        shape=shape(500), min_replicas=1, max_replicas=most, trainers_per_server=ratio, pinned_replicas=pinned
    )
    return replace(job(name, low=low, high=high), servers=servers)


def settled(nodes, *jobs, policy=CALM, is_elastic=True):
    cluster = MemoryCluster(nodes, jobs)
    cluster.capabilities = Capabilities(servers_elastic=is_elastic)
    driver = Driver(cluster, policy)
    driver.settle()
    return driver


def counts(driver, name="j"):
    pods = [pod for pod in driver.cluster.pods.values() if pod.job == name]
    return tuple(sum(pod.role is role for pod in pods) for role in (Role.TRAINER, Role.SERVER))


def test_servers_come_by_the_ratio_and_before_the_trainers_that_need_them():
    """8 trainers, one server for two; in every plan the servers are created first."""
    driver = settled([node("a", 16_000)], elastic("j"))
    assert counts(driver) == (8, 4)
    made = [action.role for action, _ in driver.cluster.applied if isinstance(action, CreatePod)]
    assert made[0] is Role.SERVER
    assert decision(driver.plan(), "j").servers_target == 4


def test_elsewhere_their_number_stays_at_the_minimum_and_a_notice_says_so():
    """The same job on a cluster that cannot move state."""
    driver = settled([node("a", 16_000)], elastic("j"), is_elastic=False)
    assert counts(driver) == (8, 1)
    assert "stay at minReplicas 1" in decision(driver.plan(), "j").notice


def test_step_without_room_for_its_server_is_not_made():
    """Servers count: 6.5 cores hold 4 trainers and 2 servers, the fifth would need a third."""
    driver = settled([node("a", 6_400)], elastic("j"))
    assert counts(driver) == (4, 2)


def test_bounds_and_pin_hold():
    """At most `maxReplicas`, and exactly the pinned number."""
    assert counts(settled([node("a", 16_000)], elastic("j", most=2))) == (8, 2)
    assert counts(settled([node("a", 16_000)], elastic("j", pinned=3))) == (8, 3)


def pinned(driver, count, name="j"):
    """The user writes `spec.parameterServer.replicas`."""
    before = driver.cluster.jobs[name]
    driver.cluster.put(replace(before, servers=replace(before.servers, pinned_replicas=count)))


def test_number_set_by_hand_holds_at_once():
    """No window is waited for, in either direction; 0 gives the number back to the ratio.  Both are told."""
    driver = settled([node("a", 16_000)], elastic("j"), policy=replace(CALM, down_window_s=30.0))
    pinned(driver, 2)
    fewer = driver.turn()
    told = decision(fewer, "j")
    assert {(action.pod, action.cause) for action in fewer.actions} == {
        ("j-server-3", Cause.EDIT),
        ("j-server-2", Cause.EDIT),
    }
    assert (told.reason, told.message) == (Reason.SHRUNK, "removed 2 servers: parameterServer.replicas is 2")
    assert (told.servers, told.servers_target) == (4, 2)
    driver.settle()
    pinned(driver, 3)
    more = driver.turn()
    assert [action.role for action in more.actions] == [Role.SERVER]
    assert "gets 1 server on a: parameterServer.replicas is 3" in decision(more, "j").message
    pinned(driver, 0)
    driver.settle()
    assert counts(driver) == (8, 4)


def test_both_numbers_set_by_one_write_are_told():
    """`edl scale --trainers 4 --servers 2`: one decision, and both of the user's words."""
    driver = settled([node("a", 16_000)], elastic("j"), policy=CALM)
    before = driver.cluster.jobs["j"]
    pins = {
        "trainer": replace(before.trainer, pinned_replicas=4),
        "servers": replace(before.servers, pinned_replicas=2),
    }
    driver.cluster.put(replace(before, **pins))
    assert decision(driver.turn(), "j").message == (
        "removed 4 trainers and 2 servers: trainer.replicas is 4, parameterServer.replicas is 2"
    )
    driver.settle()
    assert counts(driver) == (4, 2)


def test_servers_that_leave_alone_are_told():
    """A plan that only gives back servers is news, with its cause."""
    driver = settled([node("a", 10_000)], elastic("j"), policy=replace(CALM, down_window_s=30.0))
    driver.cluster.advance(60.0)
    before = driver.cluster.jobs["j"]
    driver.cluster.put(replace(before, servers=replace(before.servers, trainers_per_server=4)))
    driver.cluster.advance(31.0)
    told = decision(driver.turn(), "j")
    assert (told.reason, told.cause) == (Reason.SHRUNK, Cause.RATIO)
    assert told.message == "removed 2 servers: its trainers need fewer servers"
    assert told.bottleneck_message == "at maxReplicas 8", "the bottleneck has its own words beside a change"


def test_servers_leave_within_their_own_grace():
    """Their part of the model has to go to the others first; a trainer has only a batch to finish."""
    wanted = elastic("j")
    driver = settled([node("a", 16_000)], replace(wanted, servers=replace(wanted.servers, grace_s=120.0)))
    pinned(driver, 3)
    (leaving,) = driver.turn().actions
    assert (leaving.pod, leaving.grace_s) == ("j-server-3", 120.0)


def test_pin_outside_the_bounds_is_refused_with_its_field():
    """A plan that rests on it would be wrong everywhere."""
    with pytest.raises(InvalidSpecError, match=r"spec\.parameterServer\.replicas.*1 to 4, or 0"):
        elastic("j", pinned=5)


def test_web_takes_trainers_and_servers_follow_after_the_window():
    """Forced shrinking takes no server; by the ratio it leaves later, voluntarily."""
    policy = replace(CALM, down_window_s=30.0)
    driver = settled([node("a", 10_000)], elastic("j"), policy=policy)
    assert counts(driver) == (8, 4)
    driver.cluster.advance(60.0)
    now_s = driver.cluster.now()
    driver.cluster.put(*(web(f"w{n}", since_s=now_s, created_at_s=now_s) for n in range(5)))
    taken = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert {action.role for action in taken} == {Role.TRAINER}
    driver.settle()
    assert counts(driver)[1] == 4
    driver.cluster.advance(31.0)
    left = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert [(action.pod, action.cause) for action in left] == [
        ("j-server-3", Cause.RATIO),
        ("j-server-2", Cause.RATIO),
    ]


def test_lost_server_above_the_minimum_comes_back():
    """The ratio holds for a job at its maximum too."""
    driver = settled([node("a", 16_000)], elastic("j"))
    driver.cluster.lose("j-server-3")
    (back,) = driver.turn().actions
    assert (back.role, back.cause) == (Role.SERVER, Cause.REFILL)


def test_trainer_waits_for_a_server_whose_room_is_being_vacated():
    """Two trainers a server: the third fits at once, its server when the web pod has left; so both wait."""
    nodes = [node("a", 3_500), node("b", 3_000)]
    spec = ServerSpec(shape=shape(500), min_replicas=1, max_replicas=2, trainers_per_server=2)
    large = replace(job("j", low=2, high=3), servers=replace(spec, shape=shape(1_500)))
    cluster = MemoryCluster(nodes, [large], drain_s=10.0)
    cluster.capabilities = Capabilities(servers_elastic=True)
    cluster.put(replace(web("w", 3_000), phase=PodPhase.READY, node="b"))
    driver = Driver(cluster, CALM)
    driver.settle()
    assert counts(driver) == (2, 1)
    cluster.put(node("c", 1_000), replace(cluster.pods["w"], phase=PodPhase.TERMINATING))
    assert driver.turn().actions == ()
    cluster.lose("w")
    assert [action.role for action in driver.turn().actions] == [Role.SERVER, Role.TRAINER]


def test_servers_leave_after_the_trainers_that_needed_them():
    """Edited down from 8 trainers to 2: three servers are told to leave when six trainers are gone, not with them."""
    driver = settled([node("a", 16_000)], elastic("j"))
    driver.cluster.put(elastic("j", high=2))
    gone = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert {action.role for action in gone} == {Role.TRAINER}
    assert driver.turn().actions == ()
    driver.cluster.advance(1.0)
    gone = [action for action in driver.turn().actions if isinstance(action, DeletePod)]
    assert [(action.role, action.cause) for action in gone] == [(Role.SERVER, Cause.RATIO)] * 3
