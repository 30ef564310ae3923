"""Sending of notices: in order, few attempts for each, nothing grows, and the address stands nowhere."""

import asyncio
import logging

import pytest

from autoscaler.errors import InvalidSpecError
from autoscaler.fault_isolation import JobErrors
from autoscaler.operator.notices.due_notices import NoticeKind, NoticeRule, Occasion
from autoscaler.operator.notices.messages import NoticeFormat
from autoscaler.operator.notices.notice_queue import ATTEMPTS, MOST_QUEUED, NoticeQueue
from autoscaler.operator.notices.notice_settings import NoticeSettings, WebhookSettings, read_notice_settings
from autoscaler.operator.notices.notice_watch import NoticeWatch
from autoscaler.operator.notices.webhook import AddressError, Webhook, post_json, read_address

SECRET = "https://hooks.example/T0/SECRET"


def notice(number=0):
    return Occasion(
        kind=NoticeKind.JOB_FAILED,
        namespace="team-a",
        name=f"job-{number}",
        uid=f"{number}",
        since_unix_s=0.0,
        due_unix_s=0.0,
    )


class Receiver:
    """Answers in turn what it is told to: a status, or an error."""

    def __init__(self, *answers):
        self.answers, self.got, self.pauses = list(answers), [], []

    async def post(self, address, body):
        self.got.append((address, body["name"]))
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, pause_s):
        self.pauses.append(pause_s)


@pytest.fixture
def address(tmp_path):
    file = tmp_path / "address"
    file.write_text(f"{SECRET}\n")
    return file


async def send(receiver, address, *notices):
    """The webhook's queue, after it has done with all of these."""
    webhook = NoticeQueue(Webhook(WebhookSettings(address_file=address), post=receiver.post), sleep=receiver.sleep)
    for one in notices:
        webhook.offer(one)
    task = asyncio.create_task(webhook.run())
    while webhook.sent + webhook.dropped < len(notices) and not task.done():  # noqa: ASYNC110 - nothing in it waits
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return webhook


async def test_notices_go_in_order(address):
    receiver = Receiver()
    webhook = await send(receiver, address, notice(1), notice(2))
    assert receiver.got == [(SECRET, "job-1"), (SECRET, "job-2")]
    assert (webhook.sent, webhook.dropped, receiver.pauses) == (2, 0, [])


@pytest.mark.parametrize("trouble", [503, 429, 408, OSError(SECRET), TimeoutError()])
async def test_a_receiver_in_trouble_is_tried_again_with_growing_pauses(address, trouble):
    receiver = Receiver(trouble, trouble)
    webhook = await send(receiver, address, notice(), notice(1))
    assert (webhook.sent, webhook.dropped, receiver.pauses) == (2, 0, [1.0, 2.0])


async def test_attempts_end_and_the_next_notice_has_its_own(address, caplog):
    receiver = Receiver(*[OSError(f"cannot connect to {SECRET}")] * ATTEMPTS)
    with caplog.at_level(logging.DEBUG):
        webhook = await send(receiver, address, notice(), notice(1))
    assert (webhook.sent, webhook.dropped) == (1, 1)
    assert "job-0 is lost" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize("status", [301, 400, 403, 404])
async def test_what_is_refused_is_not_sent_again(address, status, caplog):
    """A redirect counts as a refusal: it is not followed."""
    receiver = Receiver(status)
    webhook = await send(receiver, address, notice())
    assert (webhook.dropped, len(receiver.got)) == (1, 1)
    assert f"it answers {status}" in caplog.text


async def test_a_secret_that_comes_late_or_changes_counts_at_once(tmp_path, caplog):
    receiver, file = Receiver(), tmp_path / "address"
    webhook = await send(receiver, file, notice())
    assert (webhook.dropped, receiver.got) == (1, [])
    assert "cannot be read" in caplog.text
    for address in (SECRET, "https://hooks.example/new"):
        file.write_text(address)
        await send(receiver, file, notice())
    assert [address for address, _ in receiver.got] == [SECRET, "https://hooks.example/new"]


@pytest.mark.parametrize("text", ["", "hooks.example", "ftp://hooks.example", "https://a b", "https://" + "a" * 5000])
def test_an_address_that_is_none_is_told_without_quoting_it(tmp_path, text):
    file = tmp_path / "address"
    file.write_text(text)
    with pytest.raises(AddressError) as refused:
        read_address(file)
    assert not text or text not in str(refused.value)


ODD_ADDRESSES = (
    "https://hooks..example/SECRET",
    "https://.x/SECRET",
    f"https://{'a' * 64}.example/SECRET",
    "https://xn--a.x/SECRET",
    "https://user:SECRET\u0142@127.0.0.1:9/",
    "https://[::1/SECRET",
    "https://127.0.0.1:99999/SECRET",
)  # none is looked up or connected to


@pytest.mark.parametrize("odd", ODD_ADDRESSES)
async def test_an_address_that_no_request_can_have_is_told_without_quoting_it(odd):
    with pytest.raises(AddressError) as refused:
        await post_json(odd, {})
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_notice_that_cannot_be_sent_for_any_reason_ends_nothing(address, caplog):
    """What leaves `run` would end the leader's term, and that of the next leader."""
    receiver = Receiver(RuntimeError(f"planted {SECRET}"))
    with caplog.at_level(logging.DEBUG):
        webhook = await send(receiver, address, notice(), notice(1))
    assert (webhook.sent, webhook.dropped) == (1, 1)
    assert "job-0 is lost: it cannot be sent (RuntimeError)" in caplog.text
    assert "SECRET" not in caplog.text


def test_more_than_can_wait_is_dropped(address):
    webhook = NoticeQueue(Webhook(WebhookSettings(address_file=address)))
    assert all(webhook.offer(notice(number)) for number in range(MOST_QUEUED))
    assert not webhook.offer(notice())
    assert webhook.dropped == 1


def test_settings_are_checked(tmp_path):
    assert read_notice_settings({}) is None
    told = {"EDL_NOTICES_ADDRESS_FILE": str(tmp_path / "a")}
    assert read_notice_settings(told) == NoticeSettings(webhook=WebhookSettings(address_file=tmp_path / "a"))
    more = read_notice_settings(
        told | {"EDL_NOTICES_FORMAT": "slack", "EDL_NOTICES_WAIT_S": "60", "EDL_NOTICES_PAGE": "https://edl.example/"}
    )
    webhook = WebhookSettings(address_file=tmp_path / "a", form=NoticeFormat.SLACK)
    assert more == NoticeSettings(webhook=webhook, page="https://edl.example", rule=NoticeRule(wait_s=60.0))
    for name, value in (
        ("EDL_NOTICES_FORMAT", "mail"),
        ("EDL_NOTICES_WAIT_S", "-1"),
        ("EDL_NOTICES_WAIT_S", "1h"),
        ("EDL_NOTICES_PAGE", "edl.example"),
        ("EDL_NOTICES_PAGE", "javascript:alert(1)"),
        ("EDL_NOTICES_PAGE", "https://user:secret@edl.example"),
        ("EDL_NOTICES_PAGE", "https://edl.example/)[x](y"),
    ):
        with pytest.raises(InvalidSpecError, match=name):
            read_notice_settings(told | {name: value})


class Sink:
    def __init__(self):
        self.got, self.dropped = [], 0

    def offer(self, one):
        self.got.append(one.key)
        return True


def test_a_look_offers_what_is_due_and_a_broken_job_stops_no_other():
    """One whose object is no TrainingJob is that job's own fault (A11)."""
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    jobs = [
        {"metadata": {"name": "odd", "namespace": "a", "uid": "1"}, "status": {"conditions": [3]}},
        {"metadata": {"name": "b", "namespace": "a", "uid": "2"}, "status": {"conditions": [failed]}},
    ]
    sink = Sink()
    watch = NoticeWatch(
        [sink],
        NoticeRule(),
        jobs=lambda: jobs,
        others=lambda: [notice(9)],
        errors=JobErrors(lambda: 0.0),
        wall_s=lambda: 1_800_000_100.0,
    )
    watch.look()
    watch.look()
    assert sink.got == ["JobFailed/2/1800000000"]
