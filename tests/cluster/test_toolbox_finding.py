"""Where programs are found, and what is said when they are not.  Nothing here needs a control plane, or Go."""

import os

import pytest

from tests.cluster.build import trim
from tests.cluster.families import FAMILIES, KUBERNETES
from tests.cluster.toolbox import built_folder, cluster_cache, find_elsewhere, find_tools
from tests.harness.errors import ToolsMissingError


@pytest.fixture
def environ(tmp_path):
    """A machine that has nothing but a shell."""
    return {"EDL_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}


def put(folder, program, says):
    """A program that tells this version."""
    folder.mkdir(exist_ok=True)
    file = folder / program
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)
    return file


def test_what_is_missing_is_named_with_both_ways_out(environ):
    with pytest.raises(ToolsMissingError) as missing:
        find_tools(environ)
    for word in ("etcd", "kube-apiserver", "kwok", "node-initialize.yaml", "helm", "make cluster-tools", "QUICK=1"):
        assert word in str(missing.value)


def test_a_program_on_the_path_is_taken_when_its_version_serves(environ, tmp_path):
    good = put(tmp_path / "bin", "kube-scheduler", "Kubernetes v1.36.3")
    put(tmp_path / "bin", "kube-apiserver", "Kubernetes v1.29.0")
    environ["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environ['PATH']}"
    assert find_elsewhere(KUBERNETES, environ) == {"kube-scheduler": good}


def test_the_assets_of_other_projects_come_before_the_path(environ, tmp_path):
    put(tmp_path / "bin", "kubectl", "Client Version: v1.36.4")
    asset = put(tmp_path / "assets", "kubectl", "Client Version: v1.36.3")
    environ |= {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{environ['PATH']}", "KUBEBUILDER_ASSETS": str(asset.parent)}
    assert find_elsewhere(KUBERNETES, environ) == {"kubectl": asset}


def test_trimming_leaves_the_programs_of_todays_pins(environ):
    today = [built_folder(family, environ) for family in FAMILIES]
    others = [cluster_cache(environ) / name for name in ("go", "kwok-000000000000")]
    for folder in (*today, *others):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    trim(environ, lambda _line: None)
    assert sorted(entry for entry in cluster_cache(environ).iterdir() if entry.is_dir()) == sorted(today)
