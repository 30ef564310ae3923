"""A part of the systematic plan, one run of every family and a few more; `make perturb` goes through all of it (A9)."""

import pytest

from autoscaler.clusters.kubernetes import kubernetes_cluster
from autoscaler.clusters.kubernetes.api import decorators
from autoscaler.clusters.kubernetes.writes import pod_writer
from tests.perturb.plan import one_of_each_family, trials
from tests.perturb.trial_run import run_trial
from tests.perturb.trial_verdict import REFERENCE, problems_of


@pytest.fixture(scope="module")
def reference():
    return run_trial(REFERENCE)


def test_nothing_is_wrong_when_nothing_goes_wrong(reference):
    assert reference.problems == ()
    assert len(reference.writes) >= 60


def test_plan_has_three_hundred_runs_and_each_once(reference):
    names = [(trial.family, trial.name) for trial in trials(reference)]
    assert len(names) == len(set(names)) >= 300


def test_every_family_ends_as_if_nothing_had_gone_wrong(reference):
    chosen = one_of_each_family(reference)
    assert {trial.name: problems_of(trial, reference) for trial in chosen} == {trial.name: [] for trial in chosen}


class TestItCanFail:
    """One rule at a time is left out, and the plan finds it."""

    def test_without_asking_how_old_the_view_is(self, reference, monkeypatch):
        for module in (kubernetes_cluster, pod_writer):
            monkeypatch.setattr(module, "check_fresh", lambda _store, _now_s: None)
        assert any("A7" in problem for problem in found(reference, "stale view", "6 changes behind, after books comes"))

    def test_without_the_fence(self, reference, monkeypatch):
        monkeypatch.setattr(decorators.FencedApi, "_check", lambda _self, _doing: None)
        assert any("leads" in problem for problem in found(reference, "leader stopped", "at write"))


def found(reference, family, name):
    """The first problems that a run of this family finds."""
    chosen = (trial for trial in trials(reference) if trial.family == family and name in trial.name)
    return next((problems for trial in chosen if (problems := problems_of(trial, reference))), [])
