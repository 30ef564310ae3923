"""A build that cannot be says why, and leaves nothing half made."""

import os

import pytest

from autoscaler.etcd_server.build import find_go
from tests.cluster.build import ensure_tools, say_on_stderr
from tests.cluster.toolbox import cluster_cache
from tests.harness.errors import ToolsBuildError


def test_modules_that_cannot_be_fetched_fail_the_run_and_name_the_way_round(cluster_tools, tmp_path):
    go = find_go(cluster_cache(os.environ), os.environ, say_on_stderr)
    environ = {
        **os.environ,
        "EDL_CACHE_DIR": str(tmp_path),
        "EDL_ETCD": str(cluster_tools["etcd"]),
        "GOPROXY": "off",
        "KUBEBUILDER_ASSETS": "",
        "PATH": f"{go.parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
    }
    with pytest.raises(ToolsBuildError, match="fetching modules failed") as failed:
        ensure_tools(environ, say_on_stderr)
    assert "QUICK=1" in str(failed.value)
    assert "GOPROXY=off" in str(failed.value)
    assert [entry.name for entry in cluster_cache(environ).iterdir() if entry.name.startswith(("kub", "build-"))] == []
