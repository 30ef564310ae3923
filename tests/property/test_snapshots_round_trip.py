"""A saved moment is the moment: the same view, the same plan; and nothing else is read as one."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain import (
    Bar,
    Capabilities,
    ClusterView,
    CorePlacement,
    Headroom,
    History,
    Node,
    Plan,
    Policy,
    Refusal,
    Reservation,
    ResizeTimes,
    Resources,
    Shape,
    Shortfall,
    UnusedCapacity,
    VacatedNode,
    Workload,
)
from autoscaler.errors import InvalidSpecError
from autoscaler.planner import plan
from autoscaler.snapshots import SnapshotContent, format_document, parse_document, to_document
from autoscaler.snapshots.codec import decode, encode
from tests.property.planner_cases import Driver
from tests.property.planner_draws import clusters, jobs, stories

DEPTH = max(1, settings.default.max_examples / 100)  # 1 in `make test`, 10 in the deep profile
SCALARS = {
    int: st.integers(0, 2**63 - 1),
    float: st.floats(0, 1e12),
    bool: st.booleans(),
}
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)
amounts = st.builds(
    Resources,
    cpu_milli=SCALARS[int],
    memory_bytes=SCALARS[int],
    gpu_count=SCALARS[int],
    extended=st.dictionaries(st.text(), SCALARS[int]).map(lambda found: tuple(found.items())),
)
labels = st.dictionaries(st.text(), st.text(), max_size=2).map(lambda found: frozenset(found.items()))
shapes = st.builds(Shape, requests=amounts, node_selector=labels)
nodes = st.builds(Node, name=NAMES, allocatable=amounts, labels=labels)
workloads = st.builds(Workload, name=NAMES, shape=shapes, priority=st.integers(-8, 2**40))
histories = st.builds(
    History,
    since_s=SCALARS[float],
    resizes=st.lists(st.builds(ResizeTimes), max_size=2).map(tuple),
    vacated_nodes=st.lists(st.builds(VacatedNode), max_size=2).map(tuple),
    unused_capacity=st.lists(st.builds(UnusedCapacity, since_s=SCALARS[float]), max_size=2).map(tuple),
    refusals=st.lists(st.builds(Refusal, count=SCALARS[int], until_s=SCALARS[float]), max_size=2).map(tuple),
    reservations=st.lists(
        st.builds(Reservation, placements=st.lists(st.builds(CorePlacement), max_size=2).map(tuple))
    ).map(tuple),
    bars=st.lists(st.builds(Bar), max_size=2).map(tuple),
    shortfalls=st.lists(st.builds(Shortfall, since_s=SCALARS[float]), max_size=2).map(tuple),
    transfers_at_s=st.lists(SCALARS[float], max_size=2).map(tuple),
)
policies = st.builds(
    Policy,
    up_window_s=SCALARS[float],
    is_frozen=st.booleans(),
    headroom=st.lists(st.builds(Headroom, shape=shapes, count=st.integers(0, 9)), max_size=2).map(tuple),
)


def once(things):
    return st.lists(things, max_size=3, unique_by=lambda thing: thing.name).map(tuple)


views = st.builds(
    ClusterView,
    revision=SCALARS[int],
    observed_at_s=SCALARS[float],
    nodes=once(nodes),
    jobs=st.tuples(jobs("a"), jobs("b")),
    workloads=once(workloads),
    capabilities=st.builds(Capabilities),
    history=histories,
)


def read_back(snapshot):
    return parse_document(format_document(to_document(snapshot)))


@settings(max_examples=int(60 * DEPTH))
@given(views, policies, SCALARS[float])
def test_what_is_saved_is_read_back(view, policy, now_s):
    """Every field, amounts up to 2^63 - 1 and names of any letters among them."""
    snapshot = SnapshotContent(now_s=now_s, policy=policy, view=view, made_by="a test")
    assert read_back(snapshot) == snapshot


@settings(max_examples=int(60 * DEPTH))
@given(clusters(), stories())
def test_a_saved_moment_plans_as_the_moment_did(cluster, story):
    """Pods, history and all: `plan` answers the same (A5), so a bug report is one file."""
    driver = Driver(cluster, Policy())
    driver.live(story, seconds=1.0)
    view = cluster.view(history=driver.history)
    moment = read_back(SnapshotContent(now_s=cluster.now(), policy=driver.policy, view=view))
    assert moment.view == view
    decided = plan(view, driver.policy, cluster.now())
    assert plan(moment.view, moment.policy, moment.now_s) == decided
    assert decode(encode(decided, Plan), Plan) == decided


def field_paths(plain, path=()):
    yield path
    items = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, value in items:
        yield from field_paths(value, (*path, key))


def with_changed(plain, path, change):
    """The document with the thing at `path` changed."""
    copy = json.loads(json.dumps(plain))
    place = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = change(place[path[-1]])
    return copy


@settings(max_examples=int(60 * DEPTH))
@given(clusters(max_nodes=2), stories(max_events=2), st.data())
def test_a_harmed_file_is_read_as_something_or_refused_by_its_field(cluster, story, data):
    """No wrong type anywhere ends in a traceback; cut off anywhere, it is refused."""
    driver = Driver(cluster, Policy())
    driver.live(story, seconds=1.0)
    view = cluster.view(history=driver.history)
    document = to_document(SnapshotContent(now_s=cluster.now(), policy=Policy(), view=view))
    path = data.draw(st.sampled_from([path for path in field_paths(document) if path]))
    junk = data.draw(st.sampled_from([None, -1, 1.5, True, "x", [], {}, [1], {"a": 1}, 10**400, float("nan")]))
    with suppress(InvalidSpecError):
        parse_document(json.dumps(with_changed(document, path, lambda _: junk)))
    text = format_document(document)
    with pytest.raises(InvalidSpecError, match=r"is not JSON"):
        parse_document(text[: data.draw(st.integers(0, len(text) - 3))])
