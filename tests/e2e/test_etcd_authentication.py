"""The chart's own script that turns etcd's authentication on, when somebody else was there first (ADR 0165)."""

import os
import subprocess
from pathlib import Path

import pytest

from autoscaler.etcd_server.etcd_members import start_etcd
from autoscaler.etcd_server.finder import find_etcd
from tests.chart.rendering import pod_templates, render_set
from tests.cluster.families import ETCDCTL
from tests.cluster.toolbox import find_tools

pytestmark = pytest.mark.usefixtures("surroundings")  # so that `make e2e` runs it, which builds etcdctl

PASSWORD = "drawnByTheChart0123456789"
FAULTY = """#!/bin/sh
mv "$0.unanswered" "$0.failed" 2>/dev/null && exit 1
if [ "$*" = "auth enable" ]; then
  for words in ${{SLIPPED_IN:-}}; do {etcdctl} $(echo "$words" | tr , " ") || exit; done
fi
{etcdctl} "$@" || exit
[ "$*" != "${{CUT_SHORT_AFTER:-}}" ]
"""
"""An etcdctl that is told what a stranger does right before authentication is on, and whose answer is lost once.

Its first call fails where a file lies beside it.
"""


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
        (folder / "faulty").mkdir()
        (folder / "faulty" / "etcdctl").write_text(FAULTY.format(etcdctl=etcdctl))
        (folder / "faulty" / "etcdctl").chmod(0o755)
        self._text = text.replace("/run/edl/etcd", str(folder / "identity"))
        self._faulty = folder / "faulty"
        path = f"{Path(etcdctl).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {"PATH": path, "ETCDCTL_ENDPOINTS": endpoint}

    def run(self, *, unanswered=False):
        """It succeeds; `unanswered`: although etcd does not answer its first call."""
        if unanswered:
            (self._faulty / "etcdctl.unanswered").touch()
        done = self._run()
        assert done.returncode == 0, done.stdout + done.stderr

    def run_cut_short(self, after, *, slipped_in=()):
        """It ends after this call, and right before authentication is on a stranger made these calls."""
        stranger = " ".join(words.replace(" ", ",") for words in slipped_in)
        done = self._run(SLIPPED_IN=stranger, CUT_SHORT_AFTER=after)
        assert done.returncode != 0, done.stdout + done.stderr

    def _run(self, **faults):
        path = f"{self._faulty}{os.pathsep}{self._environment['PATH']}"
        return subprocess.run(
            ["/bin/sh", "-euc", self._text],
            env={**self._environment, "PATH": path, **faults},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def ask(self, *words, user="", said=""):
        """Whether etcd does it, and what it says."""
        told = {"ETCDCTL_USER": user, "ETCDCTL_PASSWORD": said} if user else {}
        done = subprocess.run(
            ["etcdctl", *words],
            env={**self._environment, **told},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.returncode == 0, done.stdout


@pytest.fixture
async def etcd(tmp_path):
    binary = find_etcd(allow_demo_version=False, environ=os.environ, report=print)
    async with start_etcd(binary, tmp_path / "etcd") as running:
        yield running


@pytest.fixture
def run(script, etcdctl, tmp_path, etcd):
    return Script(script, tmp_path, etcdctl, f"unix://{etcd.endpoints[0].removeprefix('unix:')}")


def check_root_is_alone(run):
    """Nobody but root, with the password of the chart, has a user or a role."""
    assert run.ask("user", "list") == (False, "")
    for kind in ("user", "role"):
        assert run.ask(kind, "list", user="root", said=PASSWORD) == (True, "root\n")
    for user in ("root", "second"):
        assert not run.ask("user", "list", user=user, said="mine")[0]


@pytest.mark.parametrize("before", ["stranger", "restarted", "nobody"])
async def test_whoever_was_there_before_authentication_has_no_user_afterwards(run, before):
    """Before it is on etcd asks nobody: a stranger's password for root, or a second administrator, stayed for good."""
    if before == "stranger":
        for user in ("root", "second", "two words", "-f", "-n"):
            assert run.ask("user", "add", "--", f"{user}:mine")[0]
        for role in ("root", "ns.job.1234"):
            assert run.ask("role", "add", role)[0]
        assert run.ask("user", "grant-role", "second", "root")[0]
        assert run.ask("role", "grant-permission", "ns.job.1234", "readwrite", "/", "--prefix")[0]
    if before == "restarted":
        assert run.ask("user", "add", f"root:{PASSWORD}")[0]
    run.run()
    check_root_is_alone(run)
    run.ask("user", "add", "ns.job.1234:its", user="root", said=PASSWORD)
    run.run()  # at an upgrade
    assert run.ask("user", "list", user="root", said=PASSWORD) == (True, "ns.job.1234\nroot\n")


async def test_a_root_that_was_made_without_a_password_gets_one(run):
    """etcd keeps "no password" of a user whose password is changed: authentication on, and nobody could sign in."""
    assert run.ask("user", "add", "root", "--no-password")[0]
    run.run()
    check_root_is_alone(run)


async def test_an_etcd_that_does_not_answer_at_once_has_no_authentication_yet(run):
    """Who does not answer a question without a user, and answers the next one, was taken for done: it stayed open."""
    run.run(unanswered=True)
    check_root_is_alone(run)


@pytest.mark.parametrize(
    "after",
    [
        "user add root --interactive=false",
        "role add root",
        "user grant-role root root",
        "auth enable",
        "user delete -- second",
        "user passwd root --interactive=false",
    ],
)
async def test_a_script_cut_short_is_finished_by_the_next_one(run, after):
    """It found authentication on and left it at that: who had come right before that stayed, as an administrator."""
    stranger = ("user add second:mine", "user grant-role second root", "role add ns.job.1234")
    run.run_cut_short(after, slipped_in=stranger)
    run.run()
    check_root_is_alone(run)


async def test_the_operator_makes_no_users_before_the_script_is_done(run):
    """They would be taken for those of strangers, and dropped."""
    run.run_cut_short("auth enable")
    assert not run.ask("user", "add", "ns.job.1234:its", user="root", said=PASSWORD)[0]
    run.run()
    check_root_is_alone(run)
