"""Samples over time: bounded rings, what was placeable, and nothing of what may not be read."""

from dataclasses import replace

from autoscaler.page.drawings.time_drawing import draw_time
from autoscaler.views.documents import EVERYTHING, ClusterDocuments, Rights
from autoscaler.views.history.samples import MOST_OWNERS, RINGS, SampleRings, sample_of
from autoscaler.views.history.time_view import MOST_POINTS, time_view
from tests.harness.page_cluster import NOW_S, demo_documents, demo_lines, job, line, node, pod


def samples_of(count, *, step_s=3.0):
    first = sample_of(demo_documents())
    assert first is not None
    return [replace(first, at_s=NOW_S - (count - 1 - n) * step_s) for n in range(count)]


def test_a_ring_keeps_what_its_span_holds_and_no_more():
    """Two days of samples a second apart leave an hour's and a day's."""
    rings = SampleRings()
    (first,) = samples_of(1)
    for second in range(2 * 86_400):
        rings.add(replace(first, at_s=NOW_S + second))
    end = NOW_S + 2 * 86_400 - 1
    for name, (span_s, step_s) in RINGS.items():
        kept = rings.samples(name, now_s=end)
        assert len(kept) <= span_s / step_s + 1
        assert end - kept[-1].at_s < step_s
        assert end - kept[0].at_s > span_s - 2 * step_s


def test_a_clock_that_went_back_begins_anew():
    rings = SampleRings()
    early, late = samples_of(2)
    rings.add(late)
    rings.add(early)
    assert list(rings.samples("hour", now_s=NOW_S)) == [early]


def test_each_instant_is_shared_out_whole():
    """Web and jobs together are what is in use, and never more than was placeable or there."""
    view = time_view(samples_of(5), [], EVERYTHING, span="hour")
    assert view.web is not None
    for at in range(5):
        held = view.web.amounts[at] + sum(layer.amounts[at] for layer in view.jobs)
        assert held == view.used[at] <= view.placeable[at] <= view.capacity[at]


def test_placeable_is_no_more_than_is_wanted():
    """A job at its maximum beside free nodes wastes nothing."""
    documents = demo_documents()
    full = replace(documents, jobs=(job("digits-a", high=3, ready=3),), pods=documents.pods[:5])
    view = time_view([s for s in [sample_of(full)] if s], [], EVERYTHING, span="hour")
    assert view.placeable == view.used
    assert view.used_share == 1.0


def test_a_trainer_that_waits_or_starts_is_wanted_once():
    """A job of at most 8 trainers of a core wants 8 cores, whatever part of them runs, starts and has no node."""
    eight = job("x", high=8, ready=3, target=8)
    requests = {"cpu": "1", "memory": "64Mi"}
    eight["spec"]["trainer"]["template"] = {
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    }
    pods = [pod(f"x-trainer-{n}", on="n" if n < 4 else "", job="x", ordinal=n, is_ready=n < 3) for n in range(6)]
    documents = ClusterDocuments(now_s=NOW_S, nodes=(node("n", cpu="16"),), pods=tuple(pods), jobs=(eight,))
    sample = sample_of(documents)
    assert (sample.used, sample.wanted) == (4_000, 8_000)


def test_a_plot_has_few_points_and_the_newest():
    found = time_view(samples_of(1_200), [], EVERYTHING, span="hour")
    assert len(found.instants) <= MOST_POINTS
    assert found.instants[-1] == NOW_S


def test_jobs_that_may_not_be_read_are_in_no_layer():
    rights = Rights(namespaces=frozenset({"rivals"}), can_read_nodes=True, can_plan=False)
    found = time_view(samples_of(3), [*demo_lines(), line("tj/x", "Grown", namespace="rivals")], rights, span="hour")
    assert found.jobs == ()
    assert [one.object for one in found.marks] == ["tj/x"]
    assert "digits" not in repr(found)


def test_without_nodes_there_is_no_sample_and_no_share():
    assert sample_of(ClusterDocuments(now_s=NOW_S)) is None
    assert time_view([], [], EVERYTHING, span="hour").used_share is None


def test_history_of_a_viewer_of_one_namespace_has_no_sums():
    """Neither capacity nor use of others, by whatever it could be computed from."""
    rights = Rights(namespaces=frozenset({"team"}), can_read_nodes=True, can_plan=False)
    jobs = (("team/a", 1_000), ("other/b", 2_000), ("others", 500))
    samples = [replace(one, jobs=jobs, sizes=(("team/a", 1), ("other/b", 2))) for one in samples_of(2)]
    view = time_view(samples, (), rights, span="hour")
    assert [(layer.owner, layer.amounts) for layer in view.jobs] == [("team/a", (1_000, 1_000))]
    assert view.used == (1_000, 1_000)
    assert not any((*view.capacity, *view.placeable, *view.web.amounts, *view.web_wanted, *view.web_running))
    assert view.used_share is None


def test_what_a_viewer_may_not_know_is_none_and_not_zero():
    """In every series and in the mean, so that nobody takes it for an empty cluster."""
    rights = Rights(namespaces=frozenset({"team"}), can_read_nodes=True, can_plan=False)
    view = time_view(samples_of(2), (), rights, span="hour")
    for series in (view.capacity, view.placeable, view.web.amounts, view.web_wanted, view.web_running):
        assert series == (None, None)
    assert view.web.mean is None


def test_a_job_among_those_that_a_sample_does_not_name_is_not_known():
    """Neither for its owner nor for somebody who may read everything; where a sample names all, it held nothing."""
    named, all_named, unnamed = samples_of(3)
    named = replace(named, jobs=(("team/a", 1_000),), has_more=True)
    all_named = replace(all_named, jobs=(("team/b", 500),))
    unnamed = replace(unnamed, jobs=(("team/b", 500), ("others", 2_000)), has_more=True)
    for rights in (EVERYTHING, Rights(namespaces=frozenset({"team"}), can_read_nodes=False, can_plan=False)):
        view = time_view([named, all_named, unnamed], (), rights, span="hour")
        assert {one.owner: one.amounts for one in view.jobs}["team/a"] == (1_000, 0, None)


def test_many_small_jobs_are_told_of():
    pods = tuple(pod(f"j{n:03}-trainer-0", on="n", job=f"j{n:03}", cpu="100m") for n in range(MOST_OWNERS + 1))
    documents = ClusterDocuments(now_s=NOW_S, nodes=(node("n", cpu="16"),), pods=pods)
    assert sample_of(documents).has_more
    assert not sample_of(replace(documents, pods=pods[1:])).has_more


def test_a_picture_has_a_gap_where_nothing_is_known():
    """Two runs that begin anew, and no path at all for what is never known."""
    samples = [replace(one, jobs=(("team/a", 1_000),), has_more=True) for one in samples_of(5)]
    samples[2] = replace(samples[2], jobs=())
    plot = draw_time(time_view(samples, (), EVERYTHING, span="hour"), {})
    paths = {area.layer.owner: area.path for area in plot.areas}
    assert paths["team/a"].count("M") == paths["team/a"].count("Z") == 2
    assert paths["web"].count("M") == 1
    rights = Rights(namespaces=frozenset({"team"}), can_read_nodes=False, can_plan=False)
    plot = draw_time(time_view(samples, (), rights, span="hour"), {})
    assert {plot.placeable, plot.capacity, plot.web_wanted, plot.web_running} == {""}
    assert next(area.path for area in plot.areas if area.layer.owner == "web") == ""


def test_jobs_of_a_namespace_that_ended_are_named_no_more():
    """Whoever gets the name next reads no history of those before; what was held is still told."""
    rings, (first,) = SampleRings(), samples_of(1)
    jobs = (("gone/a", 700), ("gone/b", 300), ("others", 50), ("team/c", 2_000))
    rings.add(replace(first, jobs=jobs, sizes=(("gone/a", 1), ("team/c", 2)), has_more=True))
    assert rings.namespaces == {"gone", "team"}
    rings.forget({"gone"})
    assert rings.namespaces == {"team"}
    for name in RINGS:
        (kept,) = rings.samples(name, now_s=NOW_S)
        assert (kept.jobs, kept.sizes) == ((("team/c", 2_000), ("others", 1_050)), (("team/c", 2),))
        assert kept.held_by("gone/a") is None
