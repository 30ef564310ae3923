"""Reviews: only a whole yes is a yes, and nothing that cannot be a token is sent to the API server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.cluster_page.reviews import (
    MOST_TOKEN_BYTES,
    ReadRight,
    TokenUser,
    access_review,
    bearer_token,
    parse_access_review,
    parse_token_review,
    token_review,
)
from autoscaler.clusters.kubernetes.api.kinds import PODS

ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["true", "ann"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "authenticated", "user", "username", "groups", "extra", "allowed", "denied"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["status", "spec", "kind"]), ANSWERS))
def test_answer_that_is_no_whole_yes_is_a_no(answer):
    """Whatever a proxy or a broken webhook answers: no error, and nobody gets in by it."""
    status = answer.get("status")
    status = status if isinstance(status, dict) else {}
    user = status.get("user")
    name = user.get("username") if isinstance(user, dict) else None
    is_known = status.get("authenticated") is True and isinstance(name, str) and name != ""
    assert (parse_token_review(answer, ()) is not None) == is_known
    assert parse_access_review(answer) == (status.get("allowed") is True and not status.get("denied"))


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc.def-_~+/=", "abc.def-_~+/="),
        ("bearer  abc ", "abc"),
        ("Basic YW5uOg==", ""),
        ("Bearer", ""),
        ("", ""),
        ("Bearer a b", ""),
        ("Bearer a\r\nb", ""),
        ("Bearer \u0430bc", ""),  # Cyrillic
        (f"Bearer {'x' * MOST_TOKEN_BYTES}", "x" * MOST_TOKEN_BYTES),
        (f"Bearer {'x' * (MOST_TOKEN_BYTES + 1)}", ""),
    ],
)
def test_token_of_a_header(header, token):
    assert bearer_token(header) == token


def test_question_holds_all_that_rights_may_depend_on():
    viewer = TokenUser(name="ann", uid="7", groups=("a", "b"), extra=(("scopes", ("x",)),))
    spec = access_review(viewer, ReadRight(kind=PODS, namespace="team-a"))["spec"]
    assert spec == {
        "user": "ann",
        "uid": "7",
        "groups": ["a", "b"],
        "extra": {"scopes": ["x"]},
        "resourceAttributes": {
            "verb": "list",
            "group": "",
            "version": "v1",
            "resource": "pods",
            "namespace": "team-a",
        },
    }


def test_viewer_is_read_as_the_server_tells_it():
    user = {"username": "ann", "uid": "7", "groups": ["a"], "extra": {"k": ["v"]}}
    answer = {"status": {"authenticated": True, "user": user, "audiences": ["edl-page", "other"]}}
    expected = TokenUser(name="ann", uid="7", groups=("a",), extra=(("k", ("v",)),))
    assert parse_token_review(answer, ("edl-page",)) == expected
    assert parse_token_review(answer, ()) == expected
    assert parse_token_review(answer, ("mine",)) is None
    assert token_review("t", ("edl-page",)) == {"spec": {"token": "t", "audiences": ["edl-page"]}}


def test_server_that_knows_no_audiences_lets_nobody_in_where_one_is_wanted():
    answer = {"status": {"authenticated": True, "user": {"username": "ann"}}}
    assert parse_token_review(answer, ("edl-page",)) is None
