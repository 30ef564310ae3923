"""Where objects stand in the API's paths."""

import pytest

from autoscaler.clusters.kubernetes.api.errors import NotFoundError
from autoscaler.clusters.kubernetes.api.kinds import NODES, PODS, TRAINING_JOBS


def test_paths_are_those_of_the_api():
    assert NODES.path(name="n1") == "/api/v1/nodes/n1"
    assert PODS.path("a", "x") == "/api/v1/namespaces/a/pods/x"
    assert TRAINING_JOBS.path("a", "x", "status") == "/apis/edl.dev/v1alpha1/namespaces/a/trainingjobs/x/status"


@pytest.mark.parametrize("name", ["..", ".", "../x", "x/../..", "x?watch=1", "x%2F", "x#", "x y", "\x1b[31m"])
def test_what_cannot_be_a_name_is_asked_of_no_server(name):
    """`edl delete pod/..` would have been the namespace."""
    with pytest.raises(NotFoundError):
        PODS.path("a", name)
    with pytest.raises(NotFoundError):
        PODS.path(name, "a")
