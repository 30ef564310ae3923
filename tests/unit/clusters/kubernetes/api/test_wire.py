"""What is no answer is refused at the door, whatever it is; what is one gets through whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clusters.kubernetes.api.api_port import EventType, Listing
from autoscaler.clusters.kubernetes.api.errors import ExpiredError, MalformedError, UnavailableError
from autoscaler.clusters.kubernetes.api.kinds import CONFIG_MAPS
from autoscaler.clusters.kubernetes.api.responses import decode_json, parse_list_page, parse_object, parse_watch_line
from autoscaler.clusters.kubernetes.cache.object_cache import ObjectCache
from autoscaler.fault_isolation import JobErrors

ONE = {"metadata": {"name": "c", "namespace": "n", "resourceVersion": "7", "managedFields": [{}]}}
BARE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "n", "resourceVersion": "7"},
}


def line(**said):
    return json.dumps(said).encode()


def test_an_event_is_read_with_kind_and_version_and_without_bookkeeping():
    event = parse_watch_line(line(type="ADDED", object=ONE), CONFIG_MAPS, description="watch configmaps")
    assert (event.type, event.object, event.resource_version) == (EventType.ADDED, BARE, "7")


def nested(levels, *, opening='{"a":', closing="}"):
    return f"{opening * levels}1{closing * levels}"


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('{"]}":["[\\"{",', "]}")])
def test_what_is_nested_too_deeply_is_cut_and_the_rest_is_read(opening, closing):
    """An API server takes 10,000 levels from whoever may write one pod; nobody saw any pod any more (A11)."""
    deep = nested(4_900, opening=opening, closing=closing)
    told = f'{{"before": [1, {{"x": "}}]"}}], "deep": {deep}, "after": [{deep}, "\\\\", 2.5]}}'
    found = decode_json(told.encode())
    assert (found["before"], found["after"][1:]) == ([1, {"x": "}]"}], ["\\", 2.5])
    assert json.loads(json.dumps(found)) == found


def test_an_event_with_managed_fields_of_any_depth_is_read():
    fields = nested(5_000, opening='{"f:a":')
    said = f'{{"type": "ADDED", "object": {json.dumps(ONE).replace("[{}]", f"[{fields}]")}}}'
    assert parse_watch_line(said.encode(), CONFIG_MAPS, description="watch configmaps").object == BARE


@pytest.mark.parametrize("said", [b"[" * 5_000, b'{"a":' * 3_000, b"[" * 2_000 + b'"a', b"]" * 9 + b"[" * 3_000])
def test_what_is_deep_and_no_json_is_refused(said):
    with pytest.raises((ValueError, RecursionError)):
        decode_json(said)


def test_a_bookmark_needs_no_name():
    told = parse_watch_line(
        line(type="BOOKMARK", object={"metadata": {"resourceVersion": "9"}}), CONFIG_MAPS, description="watch"
    )
    assert told.resource_version == "9"


def test_an_error_is_what_it_says():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(ExpiredError, match="watch configmaps: too old"):
        parse_watch_line(line(type="ERROR", object=status), CONFIG_MAPS, description="watch configmaps")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"<html>502 Bad Gateway</html>",
        b'{"type": "ADDED", "object": {"meta',
        b"\xff\xfe",
        b"null",
        b"[]",
        b"[" * 100_000,
        line(type="ADDED"),
        line(object=ONE),
        line(type="CHANGED", object=ONE),
        line(type="ERROR", object="down"),
        line(type="ADDED", object=[]),
        line(type="ADDED", object={}),
        line(type="ADDED", object={"metadata": {"name": "c"}}),
        line(type="ADDED", object={"metadata": {"name": "c", "resourceVersion": "new"}}),
        line(type="ADDED", object={"metadata": {"resourceVersion": "7"}}),
        line(type="ADDED", object={"metadata": {"name": ["c"], "resourceVersion": "7"}}),
        line(type="ADDED", object={"metadata": {"name": "c", "namespace": {}, "resourceVersion": "7"}}),
    ],
    ids=lambda said: repr(said[:40]),
)
def test_a_line_that_is_none_is_told_from_an_event(said):
    with pytest.raises(MalformedError, match="watch configmaps: unexpected response"):
        parse_watch_line(said, CONFIG_MAPS, description="watch configmaps")


WORDS = ("type", "object", "metadata", "name", "namespace", "resourceVersion", "items", "continue")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@given(type_=st.sampled_from([*EventType, "ERROR", "?"]), obj=JSON, more=JSON)
def test_whatever_is_taken_for_an_event_the_store_can_take(type_, obj, more):
    metadata = {"name": "c", "resourceVersion": "7"} | (more if isinstance(more, dict) else {})
    store = ObjectCache(JobErrors(lambda: 0.0))
    store.apply_listing(CONFIG_MAPS, Listing(items=(), resource_version="1"), requested_at_s=0.0)
    for said in (obj, {"metadata": metadata}):
        try:
            event = parse_watch_line(line(type=type_, object=said), CONFIG_MAPS, description="watch")
        except (MalformedError, UnavailableError):
            continue
        store.apply_event(CONFIG_MAPS, event, at_s=0.0)


def test_a_page_is_read_with_where_the_rest_is():
    page = {"metadata": {"resourceVersion": "8", "continue": "there"}, "items": [ONE]}
    assert parse_list_page(page, CONFIG_MAPS, description="list") == ([BARE], "8", "there")
    assert parse_list_page({"metadata": {"resourceVersion": "8"}, "items": None}, CONFIG_MAPS, description="list") == (
        [],
        "8",
        "",
    )


@pytest.mark.parametrize(
    "page",
    [
        None,
        [],
        "ok",
        {},
        {"items": []},
        {"metadata": {}, "items": []},
        {"metadata": {"resourceVersion": "8"}},
        {"metadata": {"resourceVersion": "8"}, "items": [None]},
        {"metadata": {"resourceVersion": "8"}, "items": [{}]},
        {"metadata": {"resourceVersion": "8"}, "items": 3},
    ],
    ids=repr,
)
def test_a_page_that_is_none_is_refused(page):
    with pytest.raises(MalformedError, match="list configmaps: unexpected response"):
        parse_list_page(page, CONFIG_MAPS, description="list configmaps")


@pytest.mark.parametrize("answer", [None, [], "ok", {"metadata": 3}], ids=repr)
def test_an_answer_that_is_no_object_leaves_open_whether_it_was_done(answer):
    with pytest.raises(UnavailableError) as refused:
        parse_object(answer, description="create configmaps n/c", is_write=True)
    assert refused.value.may_have_happened
