"""`edl get -l`: objects by their labels, as kubectl has it."""

from contextlib import contextmanager

import click
import pytest
from click.testing import CliRunner

from autoscaler.cli.arguments.label_selector import LabelSelector
from autoscaler.cli.arguments.place_selection import PlaceSelector
from autoscaler.cli.main import edl
from tests.unit.cli.kube_place import stage

LABELS = {"edl.dev/job": "digits", "tier": "core"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("edl.dev/job=digits", True),
        ("edl.dev/job==digits,tier=core", True),
        ("edl.dev/job=digits,tier=surplus", False),
        ("tier!=surplus", True),
        ("zone!=a", True),
        ("zone", False),
        ("!zone", True),
        ("tier", True),
        ("tier in (core, surplus),edl.dev/job notin (other)", True),
        ("tier notin (core,surplus)", False),
        ("zone=", False),
    ],
)
def test_requirements_hold_as_kubernetes_has_them(text, holds):
    """All of them; a label that is missing differs from every value."""
    requirements = LabelSelector().convert(text, None, None)
    assert all(one.holds(LABELS) for one in requirements) is holds


@pytest.mark.parametrize("text", ["", "=a", "a=b=c", "a b", "a in b", "a=b,", "a in (b"])
def test_what_is_no_selector_is_refused(text):
    with pytest.raises(click.BadParameter, match="selects no label: write KEY=VALUE"):
        LabelSelector().convert(text, None, None)


def test_get_lists_objects_of_a_label_without_a_heading(monkeypatch):
    """In a script: names alone, and no heading to cut off."""
    with stage() as (made, place):
        made.make_trainers(made.make_job(), 2)

        @contextmanager
        def opened(*_, **__):
            yield place

        monkeypatch.setattr(PlaceSelector, "open", opened)

        def names_of(*words):
            done = CliRunner().invoke(edl, ["get", *words])
            assert done.exit_code == 0, done.output
            return [line.split()[0] for line in done.output.splitlines()]

        trainers = ["digits-trainer-0", "digits-trainer-1"]
        assert names_of("pods", "-l", "edl.dev/role=trainer", "--no-headers") == trainers
        assert names_of("pods", "-l", "edl.dev/role in (trainer, server)") == ["NAME", *trainers]
        assert names_of("pods", "-l", "edl.dev/role=server") == ["nothing"]
        assert names_of("tj", "--no-headers") == ["digits"]
