"""Places that several of these tests look at."""

import pytest

from autoscaler.clusters.kubernetes.api import kinds
from tests.unit.cli.kube_place import node, raw_pod, stage


@pytest.fixture
def digits():
    """A job with two trainers on one node, a web pod beside it, and the place."""
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        made.make_trainers(made.make_job(), 2)
        made.make(kinds.PODS, raw_pod("web-1", node="n1"))
        yield made, place
