"""One resource, equal replicas: the water-filling is exactly leximin, as brute force over all allocations says: of
shares, and of progress.

From all minimums: what a job has taken before a later one came is moved by transfers, by gaps of two steps (A4).
"""

from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain import Fairness
from autoscaler.planner.working_copy.progress import progress_scale
from autoscaler.throughput import CurveShape, FittedCurve
from tests.property.planner_cases import NO_GATES, Driver
from tests.unit.clusters.memory_cluster import MemoryCluster
from tests.unit.planner.setups import job, node

claim = (st.integers(1, 3), st.integers(0, 5), st.sampled_from([100, 200, 300]))
claims = st.lists(st.tuples(*claim), min_size=1, max_size=4)


def curve(**parts):
    """A curve that is known."""
    shape = CurveShape(work=1.0, **parts)
    return FittedCurve(expected=shape, favourable=shape, sizes=(1, 2))


@settings()
@given(claims, st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_one_resource_and_equal_replicas_are_shared_leximin(claims, rooms):
    """A4's strongest form: the sorted vector of weighted shares is the largest of all that fit."""
    listed = [
        job(f"j{number}", low=low, high=low + more, weight=weight) for number, (low, more, weight) in enumerate(claims)
    ]
    capacity = sum(rooms)
    cluster = MemoryCluster([node(f"n{number}", room * 1_000) for number, room in enumerate(rooms)], at_minimum(listed))
    driver = Driver(cluster, NO_GATES)
    driver.settle()
    for spec in listed:
        cluster.put(spec)
    sizes = {decision.job: decision.now for decision in driver.settle().decisions}
    running = [spec for spec in listed if sizes[spec.name]]
    choices = product(*(range(spec.trainer.min_replicas, spec.trainer.max_replicas + 1) for spec in running))
    best = max((ordered(running, counts) for counts in choices if sum(counts) <= capacity), default=[])
    assert ordered(running, [sizes[spec.name] for spec in running]) == best


curves = st.sampled_from([None, *(curve(serial=serial) for serial in (0.05, 0.3, 4.0)), curve(exchange=0.2)])


@settings()
@given(st.lists(st.tuples(*claim, curves), min_size=1, max_size=4), st.integers(2, 12))
def test_progress_is_shared_leximin(claims, capacity):
    """The sorted vector of progress is the largest of all that fit, whatever the curves."""
    listed = [
        job(f"j{number}", low=low, high=low + more, weight=weight, throughput=throughput)
        for number, (low, more, weight, throughput) in enumerate(claims)
    ]
    cluster = MemoryCluster([node("n", capacity * 1_000)], at_minimum(listed))
    driver = Driver(cluster, replace(NO_GATES, fairness=Fairness.PROGRESS))
    driver.settle()
    for spec in listed:
        cluster.put(spec)
    sizes = {decision.job: decision.now for decision in driver.settle().decisions}
    running = [spec for spec in listed if sizes[spec.name]]
    total = sum(spec.weight for spec in running)
    scales = [progress_scale(spec, 600 // spec.weight, total, 600 * capacity) for spec in running]

    def progress(counts):
        return sorted(scale.attained(count) for scale, count in zip(scales, counts, strict=True))

    choices = product(*(range(spec.trainer.min_replicas, spec.trainer.max_replicas + 1) for spec in running))
    best = max((progress(counts) for counts in choices if sum(counts) <= capacity), default=[])
    assert progress([sizes[spec.name] for spec in running]) == best


def at_minimum(jobs):
    """The same jobs, without room to grow."""
    return [replace(spec, trainer=replace(spec.trainer, max_replicas=spec.trainer.min_replicas)) for spec in jobs]


def ordered(jobs, counts):
    """Weighted shares from the smallest, in exact units (600 is a multiple of every weight)."""
    return sorted(count * 600 // spec.weight for spec, count in zip(jobs, counts, strict=True))
