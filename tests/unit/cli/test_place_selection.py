"""Which place a command means: what it says, then what stands around it; and never the other one by surprise."""

import sys
from pathlib import Path

import click
import pytest

from autoscaler.cli.arguments.place_selection import (
    PlaceChoice,
    PlaceEnvironment,
    PlaceKind,
    PlaceSelector,
    choose_place,
)
from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.kubeconfig import find_cluster
from autoscaler.cli.main import main
from autoscaler.clusters.local.run_files.run_folder import make_run_folder

LOCAL, CLUSTER = PlaceChoice(kind=PlaceKind.LOCAL), PlaceChoice(kind=PlaceKind.KUBERNETES)
ALL_AROUND = PlaceEnvironment(
    is_plugin=True, edl_on="local", has_edl_run=True, has_live_run=True, has_runs=True, has_cluster=True
)

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: here, context: {cluster: c, user: u, namespace: team-a}}
- {name: there, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1"}}
users:
- {name: u, user: {token: t}}
"""


@pytest.mark.parametrize(
    ("where", "around", "meant"),
    [
        (PlaceSelector(run=Path("r")), ALL_AROUND, LOCAL),
        (PlaceSelector(namespace="n"), PlaceEnvironment(has_edl_run=True, has_live_run=True), CLUSTER),
        (PlaceSelector(context="c"), PlaceEnvironment(edl_on="local"), CLUSTER),
        (PlaceSelector(is_all_namespaces=True), PlaceEnvironment(has_live_run=True), CLUSTER),
        (PlaceSelector(on="local"), ALL_AROUND, LOCAL),
        (PlaceSelector(on="kubernetes"), PlaceEnvironment(has_live_run=True), CLUSTER),
        (PlaceSelector(), ALL_AROUND, CLUSTER),
        (PlaceSelector(), PlaceEnvironment(edl_on="kubernetes", has_edl_run=True, has_live_run=True), CLUSTER),
        (PlaceSelector(), PlaceEnvironment(has_edl_run=True, has_cluster=True), LOCAL),
        (PlaceSelector(), PlaceEnvironment(has_live_run=True, has_runs=True, has_cluster=True), LOCAL),
        (PlaceSelector(), PlaceEnvironment(has_cluster=True), CLUSTER),
        (PlaceSelector(), PlaceEnvironment(), LOCAL),
    ],
)
def test_the_rule_in_its_order(where, around, meant):
    """What is said wins over what stands around, a run that lives over a kubeconfig that lies there."""
    assert choose_place(where, around) == meant


def test_a_run_that_is_over_makes_the_cluster_a_guess():
    """Whoever ran `edl run` here a minute ago must not change a cluster by the same words."""
    assert choose_place(PlaceSelector(), PlaceEnvironment(has_runs=True, has_cluster=True)).is_guess
    assert not choose_place(PlaceSelector(namespace="n"), PlaceEnvironment(has_runs=True, has_cluster=True)).is_guess


def test_a_guess_changes_nothing(tmp_path, monkeypatch, capsys):
    """It asks to be told, before anything is sent anywhere; what looks goes on."""
    (tmp_path / "config").write_text(KUBECONFIG)
    make_run_folder(tmp_path / "runs", "over", described={})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "config")
    for name in ("EDL_RUN", "EDL_ON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["edl", "delete", "tj/digits"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == Exit.USAGE
    said = capsys.readouterr().err
    assert "no run is live below ./runs; choose a place: -n team-a or --on kubernetes" in said


@pytest.mark.parametrize(
    "where",
    [
        PlaceSelector(run=Path("r"), namespace="n"),
        PlaceSelector(run=Path("r"), on="kubernetes"),
        PlaceSelector(on="local", context="c"),
    ],
)
def test_contradictions_are_refused(where):
    """Before anything is asked."""
    with pytest.raises(click.UsageError, match="on this machine"):
        choose_place(where, PlaceEnvironment())


def test_the_context_says_cluster_and_namespace(tmp_path, monkeypatch):
    """The current one, or one that is named; -n over the context's namespace; several files as kubectl reads them."""
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    target = find_cluster(str(file), None, None)
    assert (target.context, target.namespace, target.title) == ("here", "team-a", "context here")
    assert find_cluster(str(file), "there", None).namespace == "default"
    assert find_cluster(str(file), None, "x").namespace == "x"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'gone'}:{file}")
    assert find_cluster(None, None, None).context == "here"


def test_a_wrong_context_is_answered_with_those_that_are_there(tmp_path):
    """And a file that is not there with what to do."""
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    with pytest.raises(CommandError, match="it has here, there") as caught:
        find_cluster(str(file), "nowhere", None)
    assert caught.value.code is Exit.NOT_FOUND
    with pytest.raises(CommandError, match="--kubeconfig") as caught:
        find_cluster(str(tmp_path / "gone"), None, None)
    assert caught.value.code is Exit.NOT_FOUND
    file.write_text("{")
    with pytest.raises(CommandError, match="cannot be read") as caught:
        find_cluster(str(file), None, None)
    assert caught.value.code is Exit.REFUSED


@pytest.mark.parametrize(
    "content",
    [
        *("token: abc\n  secret: [", "contexts: 5", "contexts: [x]", "contexts: {a: b}", "- a", ""),
        *("secret: 2026-13-45", 5000 * "["),
    ],
)
def test_a_broken_kubeconfig_is_told_in_one_line_that_quotes_nothing(tmp_path, content):
    """What YAML has to say quotes the line, which may be a token's."""
    path = tmp_path / "config"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CommandError) as caught:
        find_cluster(str(path), None, None)
    assert "\n" not in caught.value.message
    assert "secret" not in caught.value.message
