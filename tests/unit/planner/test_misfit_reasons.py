"""Why a job's next size does not fit: each row lacks one thing, and the decision names that one."""

from dataclasses import replace

import pytest

from autoscaler.domain import Bottleneck, Capabilities, Resources, ServerSpec
from tests.property.planner_cases import Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import CALM, decision, job, node, shape

RESERVE = replace(CALM, has_device_reserve=True)
RESERVED = "the free cpu and memory of the nodes are reserved for their free devices"
GPU_JOB = job("gpu", cpu_milli=2_000, gpu=1, low=1, high=1)


def job_with_servers(*, server_milli, step=1):
    """A job of two trainers and a server, which needs another server for its next size."""
    servers = ServerSpec(shape=shape(server_milli), min_replicas=1, max_replicas=4, trainers_per_server=2)
    return replace(job("j", low=2, step=step), servers=servers)


def per_node(spec, count):
    return replace(spec, trainer=replace(spec.trainer, per_node=count))


def told(nodes, jobs, policy=CALM, hard=None):
    """What the plan at rest tells of job j."""
    cluster = MemoryCluster(nodes, jobs)
    cluster.capabilities = Capabilities(servers_elastic=True)
    if hard is not None:
        cluster.hard["default"] = hard
    driver = Driver(cluster, policy)
    driver.settle()
    found = decision(driver.plan(), "j")
    return found.now, found.bottleneck, found.message


@pytest.mark.parametrize("policy", [CALM, RESERVE])
@pytest.mark.parametrize("others", [(), (job("x", high=2),)])
def test_server_that_does_not_fit_is_named_where_a_trainer_would(policy, others):
    """Neither devices nor the surplus of another job are what the server lacks."""
    nodes = [node("a", 8_000 + 1_000 * len(others))]
    assert told(nodes, [job_with_servers(server_milli=4_000), *others], policy) == (
        2,
        Bottleneck.NODE_FIT,
        "1 trainer would fit alone, but the next size takes 1 server too (cpu 4)",
    )


def test_step_that_fits_but_for_its_server_is_not_told_to_fit_in_part():
    """Both trainers of the step would fit."""
    assert told([node("a", 8_000)], [job_with_servers(server_milli=4_000, step=2)]) == (
        2,
        Bottleneck.NODE_FIT,
        "2 trainers would fit alone, but the next size takes 1 server too (cpu 4)",
    )


def test_quota_that_the_server_exceeds_is_named():
    """The quota leaves one core, for a trainer; the server that comes with it needs four."""
    found = told([node("a", 16_000)], [job_with_servers(server_milli=4_000)], hard=Resources(cpu_milli=7_000))
    assert found == (2, Bottleneck.QUOTA, "quota team leaves 1 cpu, 5 needed")


def test_part_of_a_step_that_fits_is_told():
    assert told([node("a", 3_000)], [job("j", low=2, step=2)]) == (
        2,
        Bottleneck.STEP,
        "1 of the 2 trainers of its next step fit",
    )


@pytest.mark.parametrize("count", [1, 2])
def test_device_reserve_is_named_where_it_alone_is_in_the_way(count):
    """3 free GPUs keep 6 of the 8 cores beside the job with the fourth, for single trainers and for whole nodes."""
    spec = per_node(job("j", low=count, step=count), count)
    grown, bottleneck, message = told([node("a", 10_000, gpu=4)], [spec, GPU_JOB], RESERVE)
    assert (grown, bottleneck, message) == (2, Bottleneck.NODE_FIT, RESERVED)


@pytest.mark.parametrize("count", [1, 2])
def test_device_reserve_is_not_named_where_there_is_no_room_anyway(count):
    """All GPUs are in use; half a core is free, or one where two come together."""
    spec = per_node(job("j", low=2, step=count), count)
    _, bottleneck, message = told([node("a", 4_500 + 500 * (count - 1), gpu=1)], [spec, GPU_JOB], RESERVE)
    assert bottleneck is Bottleneck.NODE_FIT
    assert message.startswith(f"could grow with {count} cpu free on one node; a has ")


# Who has the capacity.


def beside_x(spec, *, room, most):
    """What is told of the job where `room` cores are free beside its minimum, and x has all `most` of another node."""
    cores = 1_000 * (spec.trainer.min_replicas + room)
    return told([node("a", 1_000 * most), node("b", cores)], [spec, job("x", high=most)])


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (2, (Bottleneck.NODE_FIT, "could grow with 2 cpu free on one node; a has none")),
        (3, (Bottleneck.FAIR_SHARE, "could grow by 2: the capacity is the fair share of x")),
    ],
)
def test_surplus_where_only_one_of_a_nodes_trainers_would_fit_is_not_in_the_way(most, expected):
    """x has surplus for one trainer, or for the two that come to a node together."""
    spec = per_node(job("j", low=2, step=2), 2)
    assert beside_x(spec, room=0, most=most)[1:] == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (2, (Bottleneck.FAIR_SHARE, "could grow by 2: the capacity is the fair share of x")),
        (4, (Bottleneck.STEP, "1 of the 4 trainers of its next step fit")),
    ],
)
def test_surplus_too_small_for_the_rest_of_a_step_is_not_in_the_way(step, expected):
    """One trainer of the step fits; without the surplus of x another would."""
    assert beside_x(job("j", low=step, step=step), room=1, most=2)[1:] == expected


def test_surplus_of_several_jobs_that_together_makes_room_for_a_step_is_named():
    """Each of x and y has surplus for one of the two trainers."""
    jobs = [job("j", low=2, step=2), job("x", high=2), job("y", high=2)]
    found = told([node("a", 4_000), node("b", 2_000)], jobs)
    assert found == (2, Bottleneck.FAIR_SHARE, "could grow by 2: the capacity is the fair share of x, y")
