"""Bodies of notices: what each receiver reads, and that a job's words make no link and no mention in a channel."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.operator.notices.due_notices import NoticeKind, NoticeRule, Occasion
from autoscaler.operator.notices.messages import LONGEST_TEXT, NoticeFormat, make_body, make_mail
from autoscaler.operator.notices.occasions import occasions_of_job

FAILED = Occasion(
    kind=NoticeKind.JOB_FAILED,
    namespace="team-a",
    name="digits",
    uid="7f",
    since_unix_s=1_800_000_000.4,
    due_unix_s=1_800_000_000.4,
    reason="BackoffLimitExceeded",
    message="no data",
)
RULE = NoticeRule(wait_s=600.0)


def job(status):
    return {"metadata": {"namespace": "team-a", "name": "digits", "uid": "7f"}, "status": status}


def test_plain_json_has_all_that_a_program_needs():
    assert make_body(FAILED, NoticeFormat.JSON) == {
        "version": 1,
        "kind": "JobFailed",
        "key": "JobFailed/7f/1800000000",
        "namespace": "team-a",
        "name": "digits",
        "since": "2027-01-15T08:00:00Z",
        "reason": "BackoffLimitExceeded",
        "title": "Job team-a/digits has failed: BackoffLimitExceeded",
        "message": "no data",
        "whatToDo": "edl describe tj/digits -n team-a",
    }


def test_slack_gets_a_text():
    body = make_body(FAILED, NoticeFormat.SLACK)
    wanted = "*Job team-a/digits has failed: BackoffLimitExceeded*\nno data\n`edl describe tj/digits -n team-a`"
    assert body == {"text": wanted}


def test_teams_gets_a_card():
    (attachment,) = make_body(FAILED, NoticeFormat.TEAMS)["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    texts = [block["text"] for block in attachment["content"]["body"]]
    assert texts[1:] == ["no data", "edl describe tj/digits -n team-a"]


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        (NoticeKind.JOB_FAILED, "https://edl.example/jobs/team-a/digits"),
        (NoticeKind.JOB_WAITS, "https://edl.example/jobs/team-a/digits"),
        (NoticeKind.GPUS_GIVEN_BACK, "https://edl.example/pods/team-a/digits"),
    ],
)
def test_every_form_links_to_the_page_of_the_object(kind, address):
    notice, page = replace(FAILED, kind=kind), "https://edl.example"
    (attachment,) = make_body(notice, NoticeFormat.TEAMS, page=page)["attachments"]
    assert make_body(notice, NoticeFormat.JSON, page=page)["page"] == address
    assert make_body(notice, NoticeFormat.SLACK, page=page)["text"].split("\n")[-1] == address
    assert [action["url"] for action in attachment["content"]["actions"]] == [address]
    assert (
        f": {address}\n" in make_mail(notice, sender="a@b.example", receivers=["c@d.example"], page=page).get_content()
    )


def test_a_mail_says_what_a_person_needs_and_a_second_one_is_known_by_its_id():
    mail = make_mail(FAILED, sender="edl@b.example", receivers=["c@d.example", "e@f.example"])
    assert mail["Subject"] == "Job team-a/digits has failed: BackoffLimitExceeded"
    assert (mail["From"], mail["To"]) == ("edl@b.example", "c@d.example, e@f.example")
    assert (mail["Auto-Submitted"], mail["Date"]) == ("auto-generated", "Fri, 15 Jan 2027 08:00:00 +0000")
    assert mail.get_content().split("\n\n")[1:] == ["no data", "edl describe tj/digits -n team-a\n"]
    ids = [make_mail(replace(FAILED, uid=uid), sender="a@b.example", receivers=["c@d"])["Message-ID"] for uid in "778"]
    assert ids[0] == ids[1] != ids[2]


@given(words=st.text(st.characters(), max_size=1500))
def test_hostile_words_make_no_header_of_a_mail(words):
    """Lone surrogates, line ends and controls included: it is sent, its headers are ours, and its lines are short."""
    hostile = f"{words}\r\nBcc: all@d.example\n\n.\n{words}"
    mail = make_mail(replace(FAILED, name=hostile, message=hostile), sender="a@b.example", receivers=["c@d.example"])
    sent = bytes(mail)
    head = sent.partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in head.split(b"\r\n") if not line.startswith((b" ", b"\t"))]
    assert len(names) == len(set(names)) == 9
    assert b"Bcc" not in names
    assert max(map(len, sent.split(b"\r\n"))) < 998


@pytest.mark.parametrize(
    ("kind", "command"),
    [(NoticeKind.JOB_WAITS, "edl why tj/digits -n team-a"),
     (NoticeKind.GPUS_GIVEN_BACK, "edl keep digits -n team-a --for 2h")],
)  # fmt: skip
def test_every_kind_says_what_to_do(kind, command):
    assert make_body(replace(FAILED, kind=kind), NoticeFormat.JSON)["whatToDo"] == command


@given(message=st.text(max_size=3000), form=st.sampled_from(NoticeFormat))
def test_hostile_words_stay_words(message, form):
    """No mention, no link, no control character, and a bound on every text."""
    hostile = f"<!channel> <https://example|x> [x](https://example) \x1b[31m\n{message}"
    body = make_body(replace(FAILED, message=hostile), form)
    text = json.dumps(body)
    assert len(text) < 20 * LONGEST_TEXT
    if form is NoticeFormat.SLACK:
        assert "<" not in body["text"]
    if form is NoticeFormat.TEAMS:
        assert "[x](https" not in text
    told = body.get("message") or body.get("text") or ""
    assert form is NoticeFormat.TEAMS or not any(ord(one) < 32 and one != "\n" for one in told)


def test_a_job_that_failed_is_told_of_by_its_condition():
    condition = {"type": "Failed", "status": "True", "reason": "GivenUp", "message": "m"}
    told = occasions_of_job(
        job({"conditions": [condition | {"lastTransitionTime": "2027-01-15T08:00:00Z"}], "waitingSince": "x"}), RULE
    )
    assert [(one.kind, one.due_unix_s, one.reason, one.message) for one in told] == [
        (NoticeKind.JOB_FAILED, 1_800_000_000.0, "GivenUp", "m")
    ]


def test_a_job_that_waits_is_told_of_after_its_time():
    admitted = {"type": "Admitted", "status": "False", "reason": "NodeFit", "message": "lacks 2 GPUs"}
    (told,) = occasions_of_job(job({"conditions": [admitted], "waitingSince": "2027-01-15T08:00:00Z"}), RULE)
    assert (told.kind, told.since_unix_s, told.due_unix_s) == (NoticeKind.JOB_WAITS, 1_800_000_000.0, 1_800_000_600.0)
    assert (told.reason, told.message) == ("NodeFit", "lacks 2 GPUs")


@pytest.mark.parametrize("status", [{}, {"conditions": [{"type": "Failed", "status": "False"}]}, {"waitingSince": 3}])
def test_of_a_job_that_runs_nothing_is_told(status):
    assert occasions_of_job(job(status), RULE) == ()
