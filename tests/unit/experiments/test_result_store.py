"""Passes are tasks that are run once, kept whole, and never told together with those of other code."""

import json
import pickle
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest

from experiments.__main__ import main
from experiments.errors import MixedCommitsError, RefusedInputError
from experiments.reporting import write_report as telling
from experiments.reporting.goals import evaluate_goals
from experiments.reporting.misses import format_misses
from experiments.reporting.report_tables import compare, number
from experiments.reporting.statistics import gather
from experiments.running import code_version
from experiments.running.pool import report, run_one
from experiments.running.result_store import ResultStore
from experiments.running.simulation import PassResult, simulate_pass
from experiments.running.tasks import Selection, list_tasks
from experiments.scenarios.loading import find_scenario
from experiments.scenarios.node_mixes import read_mixes
from experiments.scenarios.schema import Scenario

SMALL = {
    "name": "small",
    "title": "A small cluster",
    "until_s": 60,
    "measured_until_s": 60,
    "warm_up_s": 5,
    "nodes": [{"count": 4, "cpu": 8, "memory": "16Gi"}],
    "web": [
        {
            "name": "nginx",
            "pod": {"cpu": 2, "memory": "1Gi"},
            "replicas": 2,
            "steps": [{"at_s": 30, "replicas": 6}],
        }
    ],
    "jobs": [
        {
            "name": "job",
            "count": 2,
            "every_s": 5,
            "trainer": {"cpu": 2, "memory": "1Gi", "min": 1, "max": 8, "static": 3},
            "master": {"cpu": "100m", "memory": "100Mi"},
        }
    ],
    "arms": ["static", "edl2017", "ours-scheduler", "ours-planner"],
    "passes": 1,
}


@pytest.fixture
def scenario():
    return Scenario.model_validate(SMALL)


def result(**metrics):
    return PassResult(metrics=metrics, curves={}, wall_s=0.1)


@pytest.mark.parametrize("arm", SMALL["arms"])
def test_an_arm_plays_the_same_pass_twice(scenario, arm):
    """One setting, one result, to the last digit; capacity is never exceeded."""
    (task,) = list_tasks(scenario, (), Selection(arm=arm))
    first, second = simulate_pass(task.setting), simulate_pass(task.setting)
    assert first.metrics == second.metrics
    assert first.curves == second.curves
    assert max(first.curves["utilisation_percent"]) <= 100


def test_ours_gives_the_web_its_room_and_stays_below_the_bounds(scenario):
    """Six web pods of two cores run beside the jobs' minimums; free is at least pinned, pinned at least ours."""
    (task,) = list_tasks(scenario, (), Selection(arm="ours-planner"))
    found = simulate_pass(task.setting)
    assert found.curves["web_running"][-1] == 6
    assert found.metrics["trainers_killed"] == 0
    assert found.metrics["free_mean_percent"] >= found.metrics["pinned_mean_percent"]
    for at_s, pinned, _ in found.curves["bounds"]:
        if at_s % found.curves["step_s"] == 0:
            assert found.curves["utilisation_percent"][int(at_s // found.curves["step_s"])] <= pinned + 1e-6


def test_pods_too_small_to_list_have_linear_bounds():
    """A node of 64 cores can be filled with three kinds of small pods in thousands of ways: no pass fails for that."""
    job = SMALL["jobs"][0]
    kinds = [("a", "300m"), ("b", "700m"), ("c", "1100m")]
    jobs = [{**job, "name": name, "count": 1, "trainer": {**job["trainer"], "cpu": cpu}} for name, cpu in kinds]
    nodes = [{"count": 1, "cpu": 64, "memory": "256Gi"}]
    scenario = Scenario.model_validate({**SMALL, "nodes": nodes, "jobs": jobs, "web": []})
    (task,) = list_tasks(scenario, (), Selection(arm="ours-planner"))
    found = simulate_pass(task.setting)
    assert found.metrics["free_is_exact"] == 0
    assert found.metrics["free_mean_percent"] >= found.metrics["pinned_mean_percent"] > 0
    assert 0 < found.curves["utilisation_percent"][-1] <= found.curves["bounds"][-1][1]


def test_variants_run_on_fewer_mixes_and_passes():
    """Arms on every mix, a variant on the first two."""
    case = find_scenario("edl2017-case2")
    tasks = list_tasks(case, read_mixes(), Selection())
    counts = {arm: sum(task.arm == arm for task in tasks) for arm in {task.arm for task in tasks}}
    assert counts["ours-planner"] == 10 * len(read_mixes())
    assert counts["ours-planner+drain-10s"] == 2 * 3


def test_the_same_pass_has_the_same_seed_in_every_arm(scenario):
    """Arms meet the same chances; another seed or pass gives others."""
    tasks = list_tasks(scenario.model_copy(update={"passes": 2}), (), Selection(seed=7, passes=3))
    assert {(task.number, task.setting.seed) for task in tasks} == {(1, 7001), (2, 7002)}


def test_a_kept_pass_is_found_by_its_version_only(scenario, tmp_path):
    """An interrupted run goes on where it stopped, as long as the code is the same."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    ResultStore("a", tmp_path).store(task, result(x=1.0))
    assert ResultStore("a", tmp_path).has(task)
    assert not ResultStore("b", tmp_path).has(task)
    assert ResultStore("b", tmp_path).read_all() == []
    assert ResultStore("b", tmp_path).other_versions() == ["a"]


def test_results_of_two_versions_are_never_told_together(scenario, tmp_path):
    """A file of another commit among them is refused, not averaged."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    store = ResultStore("a", tmp_path)
    store.store(task, result(x=1.0))
    file = store.file_of(task)
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": "b"}))
    with pytest.raises(MixedCommitsError, match="made by b, not by a"):
        store.read_all()


def test_results_of_two_seeds_are_never_told_together(scenario, tmp_path, capsys):
    """Which run is meant has to be said: they are not averaged."""
    store = ResultStore("a", tmp_path)
    for seed in (1, 2):
        for task in list_tasks(scenario, (), Selection(arm="static", seed=seed)):
            store.store(task, result(x=float(seed)))
    with pytest.raises(RefusedInputError, match="seeds 1, 2"):
        store.read_all()
    assert [kept.metrics for kept in store.read_all(2)] == [{"x": 2.0}]
    assert main(["report", "--version", "a", "--seed", "3", "--results", str(tmp_path)]) == 2
    assert "no passes of version a with seed 3" in capsys.readouterr().err


def test_a_half_written_pass_is_not_there(scenario, tmp_path):
    """What a killed process left behind is not read."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    store = ResultStore("a", tmp_path)
    store.store(task, result(x=1.0))
    store.file_of(task).with_suffix(".part-1").write_text('{"versi')
    assert len(store.read_all()) == 1


@pytest.mark.parametrize("text", ['{"version": "a", "met', "", "[]", '{"version": "a"}'])
def test_a_truncated_pass_is_run_again_and_never_told(scenario, tmp_path, text):
    """A file that is not whole is no result: `run` makes it anew, `report` names it."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    store = ResultStore("a", tmp_path)
    store.store(task, result(x=1.0))
    store.file_of(task).write_text(text)
    assert not store.has(task)
    with pytest.raises(RefusedInputError, match="run again") as refused:
        store.read_all()
    assert refused.value.file == str(store.file_of(task))
    store.store(task, result(x=2.0))
    assert [kept.metrics for kept in store.read_all()] == [{"x": 2.0}]


def test_passes_of_an_edited_scenario_are_not_taken_for_those_of_the_old_one(scenario, tmp_path):
    """Same code, same name, another file: nothing is kept already, and what is left of the old is not averaged in."""
    edited = Scenario.model_validate({**SMALL, "until_s": 50, "measured_until_s": 50})
    old = Scenario.model_validate({**SMALL, "passes": 2})
    first, second = list_tasks(old, (), Selection(arm="static"))
    store = ResultStore("a", tmp_path)
    store.store(first, result(x=1.0))
    store.store(second, result(x=1.0))
    (again,) = list_tasks(edited, (), Selection(arm="static", passes=1))
    assert not store.has(again)
    store.store(again, result(x=2.0))
    assert store.has(again)
    with pytest.raises(MixedCommitsError, match="two scenarios"):
        store.read_all()


def test_code_that_changes_while_a_run_begins_keeps_nothing(scenario, tmp_path):
    """A process that loaded other code than the run began with refuses to play."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    with pytest.raises(MixedCommitsError, match="run again"):
        run_one(task, "another", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_pass_that_fails_is_told_and_a_lost_process_ends_the_run(scenario):
    """The other passes go on after the one, and none can after the other."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    failed, lost = Future(), Future()
    failed.set_exception(ValueError("no"))
    lost.set_exception(BrokenProcessPool())
    assert report(task, failed).error == "ValueError: no"
    with pytest.raises(BrokenProcessPool):
        report(task, lost)


def test_a_place_that_cannot_be_written_ends_the_run_and_keeps_nothing(scenario, tmp_path):
    """Every later pass would be played for nothing; the refusal comes whole out of the process that met it."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    in_the_way = tmp_path / "results"
    in_the_way.write_text("")
    with pytest.raises(RefusedInputError, match="cannot be written") as refused:
        ResultStore("a", in_the_way).store(task, result(x=1.0))
    ended = Future()
    ended.set_exception(pickle.loads(pickle.dumps(refused.value)))
    with pytest.raises(RefusedInputError, match="then run the same command again"):
        report(task, ended)


def test_a_pass_that_could_not_be_put_in_its_place_leaves_no_part(scenario, tmp_path):
    """A full disk is not filled by what is left of tries."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    store = ResultStore("a", tmp_path)
    store.file_of(task).mkdir(parents=True)  # the last step fails
    with pytest.raises(RefusedInputError, match="cannot be written"):
        store.store(task, result(x=1.0))
    assert list(store.file_of(task).parent.iterdir()) == [store.file_of(task)]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one source and one result, all committed."""
    monkeypatch.setattr(code_version, "ROOT", tmp_path)
    for name in ("experiments/arms/a.py", "experiments/results/summary.json", "autoscaler/b.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    me = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*me, "commit", "-q", "-m", "first")):
        assert code_version.git(*arguments) is not None
    return tmp_path


def test_the_version_is_the_commit_until_a_source_changes(repository):
    """A report that writes results leaves the version alone; an edited or a new source does not."""
    commit = code_version.read_version()
    assert commit == code_version.git("rev-parse", "--short=12", "HEAD")
    (repository / "experiments/results/summary.json").write_text("2\n")
    (repository / "experiments/results/new.json").write_text("2\n")
    assert code_version.read_version() == commit
    (repository / "autoscaler/c.py").write_text("1\n")
    added = code_version.read_version()
    assert added.startswith(f"{commit}-")
    (repository / "autoscaler/c.py").write_text("2\n")
    assert code_version.read_version() not in {commit, added}


def test_a_goal_is_judged_on_every_mix_against_its_static_arm(tmp_path):
    """Web shortfall may be 1.2 points above the static arm's on the same mix."""
    case = find_scenario("edl2017-case2")
    store = ResultStore("a", tmp_path)
    for task in list_tasks(case, read_mixes()[:2], Selection(passes=1)):
        shortfall = {"static": 1.5, "ours-planner": 2.6 if task.mix == "mix-1" else 2.8}.get(task.arm)
        if shortfall is not None:
            store.store(task, result(web_shortfall_percent=shortfall))
    verdicts = evaluate_goals(gather(store.read_all()))
    assert [(v.mix, v.is_met) for v in verdicts] == [("mix-1", True), ("mix-2", False)]


def test_a_missed_goal_is_told_with_the_bound_in_its_way(tmp_path):
    """88 % is missed on one mix of two, where pinned itself is below it; what is met is not told."""
    case = find_scenario("edl2017-case2")
    store = ResultStore("a", tmp_path)
    for task in list_tasks(case, read_mixes()[:2], Selection(passes=1, arm="ours-planner")):
        mean, pinned = (86.5, 87.5) if task.mix == "mix-1" else (88.5, 89.0)
        store.store(task, result(mean_utilisation_percent=mean, pinned_mean_percent=pinned, free_mean_percent=91.0))
    _, told, end = format_misses(evaluate_goals(gather(store.read_all())))
    assert told.startswith("* ours-planner: mean utilisation at least 88 %: missed on 1 of 2 mixes, by 1.50.")
    assert "pinned bound itself is below the goal on 1 of 2" in told
    assert "0.50 to 1.00 points below pinned" in told
    assert end == ""


@pytest.mark.parametrize(
    ("metric", "value", "reference", "is_within"),
    [
        ("mean_utilisation_percent", 85.9, 83.0, True),
        ("mean_utilisation_percent", 86.1, 83.0, False),
        ("trainer_seconds", 114.0, 100.0, True),
        ("trainer_seconds", 84.0, 100.0, False),
        ("trainers_killed", 0.0, 0.0, True),
    ],
)
def test_deviation_is_in_points_for_utilisation_and_in_percent_for_the_rest(metric, value, reference, is_within):
    """3 points, 15 %."""
    assert compare(metric, value, reference)[1] is is_within


def test_numbers_have_the_digits_that_they_deserve():
    """Thousands apart, no trailing zeros."""
    assert [number(n) for n in (1234.5, 12.0, 0.125, 100.04, None)] == ["1,234", "12", "0.12", "100", ""]


def test_a_wrong_scenario_ends_the_command_with_one_line(tmp_path, capsys):
    """Exit code 2 and the path of the field, no traceback."""
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nuntill_s: 3\n")
    assert main(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"experiments: {file}: ")
    assert error.count("\n") == 1


def test_nothing_to_report_says_what_to_do(tmp_path, capsys):
    """A fresh clone has no results."""
    assert main(["report", "--version", "v", "--results", str(tmp_path)]) == 2
    assert "python -m experiments run" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--seed", "--passes", "--workers"])
def test_a_number_below_zero_is_refused_before_anything_runs(option, tmp_path, capsys):
    """Generators of chances take none, and there is no pass before the first."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", "web-spike", option, "-1", "--results", str(tmp_path / "results")])
    assert "at least" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_report_that_lacks_what_was_published_writes_nothing(scenario, tmp_path, monkeypatch):
    """Results are not written beside a page that is not."""
    (task,) = list_tasks(scenario, (), Selection(arm="static"))
    store = ResultStore("a", tmp_path)
    store.store(task, result(x=1.0))
    monkeypatch.setattr(telling.read_figures, "__defaults__", (tmp_path / "none.json",))
    with pytest.raises(RefusedInputError, match=r"none\.json"):
        telling.write_report(store)
    assert [path.name for path in tmp_path.iterdir()] == ["passes"]
