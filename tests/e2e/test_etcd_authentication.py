"""The chart's own script that turns etcd's authentication on, when somebody else was there first (ADR 0165)."""

import os
import subprocess
from pathlib import Path

import pytest

from master.etcd_server.cluster import start_etcd
from master.etcd_server.finder import find_etcd
from tests.chart.rendering import pod_templates, render_set
from tests.cluster.families import ETCDCTL
from tests.cluster.toolbox import find_tools

pytestmark = pytest.mark.usefixtures("surroundings")  # so that `make e2e` runs it, which builds etcdctl

PASSWORD = "drawnByTheChart0123456789"


@pytest.fixture
def script():
    (spec,) = (spec for name, spec in pod_templates(render_set("own-etcd")) if "etcd-auth" in name)
    return spec["containers"][0]["command"][-1]


@pytest.fixture
def etcdctl():
    return find_tools(os.environ, (ETCDCTL,))["etcdctl"]


class Script:
    """The script's container, on this machine."""

    def __init__(self, text, folder, etcdctl, endpoint):
        (folder / "identity").mkdir()
        (folder / "identity" / "root-password").write_text(PASSWORD)
        self._text = text.replace("/run/edl/etcd", str(folder / "identity"))
        path = f"{Path(etcdctl).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {"PATH": path, "ETCDCTL_ENDPOINTS": endpoint}

    def run(self):
        done = subprocess.run(
            ["/bin/sh", "-euc", self._text],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, *words, user="", said=""):
        """Whether etcd does it, and what it says."""
        told = {"ETCDCTL_USER": user, "ETCDCTL_PASSWORD": said} if user else {}
        done = subprocess.run(
            ["etcdctl", *words],
            env={**self._environment, **told},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode == 0, done.stdout


@pytest.mark.parametrize("before", ["stranger", "restarted", "nobody"])
async def test_whoever_was_there_before_authentication_has_no_user_afterwards(script, etcdctl, tmp_path, before):
    """Before it is on etcd asks nobody: a stranger's password for root, or a second administrator, stayed for good."""
    binary = find_etcd(allow_demo_version=False, environ=os.environ, say=print)
    async with start_etcd(binary, tmp_path / "etcd") as etcd:
        run = Script(script, tmp_path, etcdctl, f"unix://{etcd.endpoints[0].removeprefix('unix:')}")
        if before == "stranger":
            for user in ("root", "second"):
                assert run.ask("user", "add", f"{user}:mine")[0]
            assert run.ask("role", "add", "root")[0]
            assert run.ask("user", "grant-role", "second", "root")[0]
        if before == "restarted":
            assert run.ask("user", "add", f"root:{PASSWORD}")[0]
        run.run()
        assert run.ask("user", "list") == (False, "")
        assert run.ask("user", "list", user="root", said=PASSWORD) == (True, "root\n")
        for user in ("root", "second"):
            assert not run.ask("user", "list", user=user, said="mine")[0]
        run.ask("user", "add", "ns.job.1234:its", user="root", said=PASSWORD)
        run.run()  # at an upgrade
        assert run.ask("user", "list", user="root", said=PASSWORD) == (True, "ns.job.1234\nroot\n")
