"""Errors of an API server as `edl` prints them: what failed, and what to do."""

import pytest

from autoscaler.cli.exit_codes import Exit
from autoscaler.cli.kubernetes.api_errors import to_command_error
from autoscaler.clusters.kubernetes.api.errors import UnavailableError

KUBELET = 'Get "https://10.0.0.7:10250/containerLogs/team-a/digits-trainer-0/trainer": dial tcp: connection refused'


@pytest.mark.parametrize(
    ("message", "hint"),
    [(KUBELET, "kubelet of the pod's node does not answer"), ("no answer in 10 s", "Check with kubectl cluster-info")],
)
def test_who_does_not_answer_is_named(message, hint):
    """The API server answers for a kubelet that does not: then nobody need look at the API server."""
    told = to_command_error(UnavailableError(message, may_have_happened=False), "context prod")
    assert told.code is Exit.FAILED
    assert message in told.message
    assert hint in told.message
    assert ("kubectl cluster-info" in told.message) is ("containerLogs" not in message)
