"""Who waits, in which order."""

from dataclasses import replace

from autoscaler.clusters.kubernetes.objects.fields import to_time
from autoscaler.views.cluster.pod_view import all_pods
from autoscaler.views.pages.waiting_view import MOST_SHOWN, pods_without_node, states_of, waiting_view
from tests.harness.page_cluster import NOW_S, condition, demo_documents, job


def waiting(name, *, priority=0, age_s=60, **status):
    status |= {"waitingSince": to_time(NOW_S - age_s), "priority": priority}
    return job(name, ready=0, target=0, status=status)


def test_the_position_is_the_planner_s():
    """Its order has shares in it, which no job's own object shows."""
    jobs = (waiting("late", age_s=10), waiting("early", age_s=90), waiting("urgent", priority=1_000, age_s=1))
    documents = replace(demo_documents(), jobs=jobs)
    for queue in (("team/urgent", "team/late", "team/early"), ("urgent", "late", "early")):  # of a cluster, of a run
        found = waiting_view(documents, queue)
        assert [(one.position, one.job.name) for one in found.starting] == [(1, "urgent"), (2, "late"), (3, "early")]


def test_without_a_plan_of_its_own_the_page_has_the_positions_of_the_operator_s():
    """Which stand in the statuses: a page that plans for nobody shows them too, and a viewer of a part those there."""
    jobs = (
        waiting("last", age_s=99),
        waiting("third", queuePosition=3),
        waiting("odd", queuePosition="2", age_s=98),
        waiting("first", queuePosition=1, age_s=5),
    )
    documents = replace(demo_documents(), jobs=jobs)
    found = [(one.position, one.job.name) for one in waiting_view(documents).starting]
    assert found == [(1, "first"), (3, "third"), (None, "last"), (None, "odd")]
    newer = waiting_view(documents, ("team/third", "team/first")).starting
    assert [(one.position, one.job.name) for one in newer[:2]] == [(1, "third"), (2, "first")]
    assert [one.position for one in newer[2:]] == [None, None]


def test_without_a_plan_there_is_no_position():
    """An operator that writes none, say."""
    jobs = (waiting("late", age_s=10), waiting("early", age_s=90), waiting("urgent", priority=1_000, age_s=1))
    documents = replace(demo_documents(), jobs=jobs)
    found = waiting_view(documents)
    assert [(one.position, one.job.name) for one in found.starting] == [
        (None, "urgent"),
        (None, "early"),
        (None, "late"),
    ]
    found = waiting_view(documents, ("rivals/first", "team/late"))  # another one has come since the plan was made
    assert [(one.position, one.job.name) for one in found.starting] == [(2, "late"), (None, "urgent"), (None, "early")]


def test_of_many_jobs_the_first_are_shown_and_all_are_counted():
    few = MOST_SHOWN + 3
    jobs = (*(waiting(f"w{n}") for n in range(few)), *(job(f"g{n}") for n in range(few + 1)))
    found = waiting_view(replace(demo_documents(), jobs=jobs))
    assert (len(found.starting), found.starting_count) == (MOST_SHOWN, few)
    assert (len(found.growing), found.growing_count) == (MOST_SHOWN, few + 1)


def test_who_has_ended_or_is_suspended_waits_for_nothing():
    over = job("over", ready=0, conditions=[condition("Completed")])
    suspended = job("suspended", ready=0, conditions=[condition("Suspended")])
    found = waiting_view(replace(demo_documents(), jobs=(over, suspended)))
    assert (found.starting, found.growing) == ((), ())


def test_a_job_at_its_maximum_or_pinned_wants_no_more():
    pinned = job("pinned", ready=2)
    pinned["spec"]["trainer"]["replicas"] = 2
    jobs = (job("full", ready=6), pinned, job("small", ready=2))
    assert [one.name for one in waiting_view(replace(demo_documents(), jobs=jobs)).growing] == ["small"]


def test_web_pods_without_a_node_are_counted_by_what_is_done_for_them():
    (found,) = waiting_view(demo_documents()).pods
    assert (found.owner, found.count, NOW_S - found.since_s) == ("team/web", 1, 8)
    assert states_in({"team/web-abc-9": "ShrunkFor"}) == {("team", "team/web"): {"ShrunkFor": 1}}
    assert states_in({"web-abc-9": "ShrunkFor"}) == {("team", "team/web"): {"ShrunkFor": 1}}


def test_each_pod_without_a_node_is_in_a_state_however_many_names_are_shown():
    waiting = next(raw for raw in demo_documents().pods if raw["metadata"]["name"] == "web-abc-9")
    few = MOST_SHOWN + 5
    pods = tuple({**waiting, "metadata": waiting["metadata"] | {"name": f"web-abc-{n}"}} for n in range(few))
    documents = replace(demo_documents(), pods=pods)
    (found,) = waiting_view(documents).pods
    assert (len(found.pods), found.count) == (MOST_SHOWN, few)
    assert states_in({}, documents) == {("team", "team/web"): {"": few}}


def states_in(demands, documents=None):
    found = pods_without_node(all_pods(demo_documents() if documents is None else documents))
    return {key: states_of(pods, demands) for key, pods in found.items()}
