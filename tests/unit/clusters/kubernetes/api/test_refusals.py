"""An answer of the server becomes the right error: told apart by reason, causes and, where there are none, words."""

import pytest

from autoscaler.clusters.kubernetes.api.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ExpiredError,
    FieldProblem,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RefusedBy,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
)
from autoscaler.clusters.kubernetes.api.responses import error_of_status


def status(code, reason="", message="", **details):
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}


def told(code, body=None, **how):
    return error_of_status(code, body, description="create pods n/x", is_write=how.pop("is_write", True), **how)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", BadRequestError),
        (401, "Unauthorized", UnauthorizedError),
        (404, "NotFound", NotFoundError),
        (405, "MethodNotAllowed", BadRequestError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", ExpiredError),
        (413, "RequestEntityTooLarge", BadRequestError),
        (429, "TooManyRequests", ThrottledError),
        (500, "InternalError", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
        (504, "Timeout", UnavailableError),
    ],
)
def test_code_and_reason_make_the_error(code, reason, error):
    found = told(code, status(code, reason, "words of the server"))
    assert type(found) is error
    assert str(found) == "create pods n/x: words of the server"


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0', RefusedBy.QUOTA),
        ('pods "x" is forbidden: failed quota: q: must specify limits.cpu for: main', RefusedBy.QUOTA),
        (
            'pods "x" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, minimum memory usage]',
            RefusedBy.LIMIT_RANGE,
        ),
        (
            'pods "x" is forbidden: User "system:serviceaccount:n:edl" cannot create resource "pods" in API group ""',
            RefusedBy.RBAC,
        ),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged', RefusedBy.POD_SECURITY),
        ('pods "x" is forbidden: no PriorityClass with name nope was found', RefusedBy.ADMISSION),
        ('admission webhook "w" denied the request: because', RefusedBy.ADMISSION),
    ],
)
def test_forbidden_says_by_whom(message, refusal):
    """Words of a real server of 1.36; `tests/cluster/test_kube_refusals_real.py` holds them."""
    found = told(403, status(403, "Forbidden", message))
    assert isinstance(found, ForbiddenError)
    assert found.refused_by is refusal


def test_namespace_on_its_way_out_is_told_by_its_cause():
    causes = [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]
    found = told(403, status(403, "Forbidden", "exceeded quota: as a name", causes=causes))
    assert found.refused_by is RefusedBy.NAMESPACE_TERMINATING


def test_invalid_names_every_field():
    causes = [
        {"reason": "FieldValueInvalid", "field": "spec.trainer.minReplicas", "message": "must be at most maxReplicas"},
        {"reason": "FieldValueRequired", "field": "spec.template", "message": "Required value"},
    ]
    found = told(422, status(422, "Invalid", "two problems", causes=causes))
    assert isinstance(found, InvalidError)
    assert found.problems == (
        FieldProblem(path="spec.trainer.minReplicas", message="must be at most maxReplicas"),
        FieldProblem(path="spec.template", message="Required value"),
    )


def test_patch_of_another_uid_is_a_conflict():
    """The server calls it invalid; what it means is that the object is not the one that was meant."""
    causes = [{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}]
    assert isinstance(told(422, status(422, "Invalid", causes=causes)), ConflictError)


def test_secret_is_not_quoted():
    """The server quotes the value that it refuses; of a Secret we do not."""
    causes = [{"reason": "FieldValueInvalid", "field": "data[key]", "message": 'Invalid value: "hunter2"'}]
    found = told(422, status(422, "Invalid", 'data[key]: Invalid value: "hunter2"', causes=causes), is_secret=True)
    assert "hunter2" not in str(found)
    assert found.problems == (FieldProblem(path="data[key]", message="FieldValueInvalid"),)


@pytest.mark.parametrize("is_write", [True, False])
def test_write_that_failed_inside_the_server_may_stand(is_write):
    """A 500 of etcd does not say whether it was written."""
    assert told(500, None, is_write=is_write).may_have_happened is is_write


@pytest.mark.parametrize(
    ("header", "details", "wait_s"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 7}, 7.0),
        (None, {}, 1.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, 1.0),
        ("-5", {}, 1.0),
        ("nan", {}, 1.0),
        ("1e9", {}, 60.0),
    ],
)
def test_patience_is_what_the_server_asks_for_within_a_bound(header, details, wait_s):
    assert told(429, status(429, **details), retry_after=header).retry_after_s == wait_s


@pytest.mark.parametrize("body", [None, "a proxy's page", [], {"kind": "Other", "message": "no"}, {"kind": "Status"}])
def test_answer_without_a_status_is_told_by_its_code(body):
    assert str(told(502, body)) == "create pods n/x: HTTP 502"


@pytest.mark.parametrize("details", [None, "text", {"causes": None}, {"causes": ["text"]}, {"causes": [{}]}])
def test_odd_details_do_no_harm(details):
    body = {"kind": "Status", "reason": "Forbidden", "message": "no", "details": details}
    assert told(403, body).refused_by is RefusedBy.ADMISSION


def test_long_message_is_cut():
    assert len(str(told(403, status(403, message="x" * 100_000)))) == 500
