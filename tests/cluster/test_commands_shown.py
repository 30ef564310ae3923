"""kubectl and helm take the lines that the pages show: they fail for want of a cluster, and of nothing else."""

import os
import re
import subprocess

import pytest

from autoscaler.cli.main import edl
from tests.cluster.chart_control_plane import IMAGES
from tests.documentation.shown import ROOT, shown_commands, shown_options
from tests.documentation.test_commands_shown import options_of
from tests.harness.waiting import BUDGET_S

COMMANDS = [command for command in shown_commands() if command.program in {"kubectl", "helm"}]
REUSED = "--reset-then-reuse-values"  # of the installation, the images and where etcd is among them
ETCD = ("--set", "etcd.external.endpoints={https://etcd.example:2379}", "--set", "etcd.external.secretName=etcd-client")
NO_CLUSTER = re.compile(r"connection refused|was refused|cluster unreachable|dial tcp", re.IGNORECASE)


@pytest.fixture
def ask(cluster_tools, tmp_path):
    """`ask("kubectl", ...)`: what the program says to these words where no API server answers."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: none\n"
        "contexts: [{name: none, context: {cluster: none, user: none}}]\n"
        'clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]\nusers: [{name: none, user: {}}]\n'
    )
    for name in ("examples", "charts"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "job.yaml").symlink_to(ROOT / "examples" / "digits.yaml")
    for name in ("ca.crt", "admin-password", "password"):
        (tmp_path / name).write_text("x")

    def asked(program, *words):
        environ = {"PATH": os.defpath, "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig), "EDITOR": "true"}
        return subprocess.run(
            [str(cluster_tools[program]), *words],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=BUDGET_S,
            check=False,
        )

    return asked


def is_whole(command):
    """Whether it names something beside a command and its flags, which a mention in a sentence may leave out."""
    return any(not word.startswith("-") for word in command.words[2:])


WHOLE = [
    command for command in COMMANDS if is_whole(command) and command.words[1] != "edl"
]  # `kubectl edl`: the plug-in
MENTIONS = [command for command in COMMANDS if not is_whole(command) and command.words[1] != "edl"]


@pytest.mark.parametrize("command", WHOLE, ids=str)
def test_only_the_cluster_is_missing(ask, command):
    """A command, flag or file that they do not know is said before they look for one."""
    told = ask(*command.words)
    said = told.stdout + told.stderr
    assert told.returncode != 0
    assert NO_CLUSTER.search(said), said


@pytest.mark.parametrize("command", [c for c in WHOLE if c.words[1] in {"install", "upgrade"}], ids=str)
def test_the_chart_takes_the_values_that_are_shown(ask, command):
    """Rendered as that line would install it."""
    words = [word for word in command.words[2:] if word != REUSED]
    told = ask("helm", "template", *words, *((*IMAGES, *ETCD) if REUSED in command.words else ()))
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("command", MENTIONS, ids=str)
def test_a_mention_is_a_command(ask, command):
    """And its flags are."""
    told = ask(command.program, command.words[1], "--help")
    assert told.returncode == 0
    assert all(word.partition("=")[0] in told.stdout for word in command.words[2:])


def test_an_option_in_a_sentence_is_helms_kubectls_or_etcds(ask, cluster_tools):
    """Where it is none of edl's."""
    helps = [
        ask("helm", command, "--help").stdout for command in ("install", "upgrade", "rollback", "uninstall", "test")
    ]
    helps += [ask("kubectl", command, "--help").stdout for command in ("scale", "get", "apply", "patch", "wait")]
    etcd = subprocess.run(
        [str(cluster_tools["etcd"]), "--help"], capture_output=True, text=True, timeout=BUDGET_S, check=True
    )
    helps.append(etcd.stdout + etcd.stderr)
    ours = {name for option in options_of(edl) for name in option.opts}
    pages = {"docs/kubernetes.md", "charts/edl/README.md"}
    others = {words[0].partition("=")[0] for page, words in shown_options() if page in pages} - ours
    assert others
    assert {name for name in others if not any(re.search(rf"{name}\b", said) for said in helps)} == set()
