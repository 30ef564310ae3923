"""The container runtime of nodes with GPUs, before a `runc` that only repeats its words.  Needs no root."""

import json
import os
import subprocess

import pytest

from tests.e2e import nvidia_runtime
from tests.harness.fake_nvml import SONAME, VARIABLE

CONTAINER = {
    "process": {"env": ["PATH=/bin"]},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
}


@pytest.fixture
def create(tmp_path):
    """Creates a container with these variables; its configuration as runc finds it, and runc's words."""
    runtime, runc, bundle = tmp_path / "runtime", tmp_path / "bin/runc", tmp_path / "bundle"
    runc.parent.mkdir()
    bundle.mkdir()
    runtime.write_text(nvidia_runtime.program("/etc/node"))
    runc.write_text('#!/bin/sh\necho "$@"\n')
    for program in (runtime, runc):
        program.chmod(0o755)

    def run(*variables):
        process = {"env": [*CONTAINER["process"]["env"], *variables]}
        config = bundle / "config.json"
        config.write_text(json.dumps({**CONTAINER, "process": process}, separators=(",", ":")))
        path = {"PATH": f"{runc.parent}:{os.environ['PATH']}"}
        words = ["--root", "/run", "create", "--bundle", str(bundle), "one two"]
        said = subprocess.run([runtime, *words], env=path, capture_output=True, text=True, check=True).stdout
        return json.loads(config.read_text()), said, " ".join(words) + "\n"

    return run


def test_a_container_that_asks_gets_the_driver(create):
    found, said, words = create("NVIDIA_VISIBLE_DEVICES=all")
    assert said == words
    added = {one["destination"]: one["source"] for one in found["mounts"][:-1]}
    library = f"{nvidia_runtime.LIBRARIES}/{SONAME}"
    assert added == {"/run/gpus": "/etc/node/gpus", library: f"/etc/node/gpus/{SONAME}"}
    assert found["mounts"][-1:] == CONTAINER["mounts"]
    assert f"{VARIABLE}=/run/gpus/scenario" in found["process"]["env"]


def test_a_container_that_does_not_ask_stays_as_it_is(create):
    found, said, words = create("OTHER=all")
    assert said == words
    assert found["mounts"] == CONTAINER["mounts"]
    assert found["process"]["env"] == ["PATH=/bin", "OTHER=all"]
