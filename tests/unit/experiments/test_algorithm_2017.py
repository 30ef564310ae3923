"""The algorithm of 2017 is written as it was described, defects included."""

from dataclasses import replace

from experiments.arms.algorithm_2017 import ObservedCluster, ObservedJob, decide

CLUSTER = ObservedCluster(
    cpu_milli=100_000,
    memory_bytes=100,
    requested_cpu_milli=50_000,
    requested_memory_bytes=10,
    idle=((6_000, 50), (3_000, 50)),
)


def job(name, parallelism, *, pods=None, running=None, pending=0, least=2, most=60):
    pods = parallelism if pods is None else pods
    return ObservedJob(
        name=name,
        cpu_milli=5_000,
        memory_bytes=1,
        least=least,
        most=most,
        parallelism=parallelism,
        pods=pods,
        running=pods if running is None else running,
        pending=pending,
    )


def test_jobs_grow_to_97_percent_of_summed_requests_although_one_node_alone_has_room():
    """The defect: a planned trainer adds to its node's idle room, so one node with room stands for all."""
    assert decide(CLUSTER, [job("a", 2)], takes_from_all=False) == {"a": 2 + 9}


def test_no_job_grows_where_no_node_has_room():
    """Only the first placement is guarded."""
    cluster = replace(CLUSTER, idle=((4_999, 50),))
    assert decide(cluster, [job("a", 2)], takes_from_all=False) == {"a": 2}


def test_the_least_fulfilled_job_grows_first():
    """Ascending by (trainers - min) / (max - min), one each in turn."""
    cluster = replace(CLUSTER, requested_cpu_milli=92_000)
    assert decide(cluster, [job("a", 9), job("b", 3)], takes_from_all=False) == {"a": 9, "b": 4}


def test_above_the_limit_the_most_fulfilled_job_shrinks_and_pending_pods_of_others_count():
    """Requests that wait push trainers out by their sum; nobody looks where they could run."""
    cluster = replace(CLUSTER, requested_cpu_milli=103_000)
    assert decide(cluster, [job("a", 9), job("b", 3)], takes_from_all=False) == {"a": 8, "b": 2}


def test_a_job_with_a_pending_or_leaving_trainer_is_no_candidate():
    """So a full cluster stays full: what cannot start keeps its job from shrinking."""
    cluster = replace(CLUSTER, requested_cpu_milli=120_000)
    listed = [job("a", 9, running=8, pending=1), job("b", 5, running=4)]
    assert decide(cluster, listed, takes_from_all=False) == {}


def test_a_starved_job_makes_all_jobs_candidates_later_on():
    """From 2017-11-08 on, as soon as one job has only pending trainers."""
    cluster = replace(CLUSTER, requested_cpu_milli=120_000)
    listed = [job("a", 9, running=8, pending=1), job("b", 2, running=0, pending=2)]
    assert decide(cluster, listed, takes_from_all=False) == {}
    assert decide(cluster, listed, takes_from_all=True) == {"a": 4, "b": 2}


def test_minimum_and_maximum_hold():
    """Above the maximum a trainer is taken back; the minimum is never undercut."""
    cluster = replace(CLUSTER, requested_cpu_milli=200_000)
    assert decide(cluster, [job("a", 4, most=3), job("b", 2)], takes_from_all=False) == {"a": 2, "b": 2}
