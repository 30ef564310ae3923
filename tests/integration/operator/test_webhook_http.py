"""Notices over real HTTP: what a receiver gets, and where none goes."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from autoscaler.operator.notices.due_notices import NoticeKind, Occasion
from autoscaler.operator.notices.messages import NoticeFormat, make_body
from autoscaler.operator.notices.notice_queue import NoticeQueue
from autoscaler.operator.notices.notice_settings import NoticeSettings, WebhookSettings
from autoscaler.operator.notices.webhook import AddressError, Webhook, post_json
from tests.harness.waiting import wait_for_async
from tests.unit.operator.term import Term

NOTICE = Occasion(
    kind=NoticeKind.JOB_FAILED,
    namespace="team-a",
    name="digits",
    uid="7f",
    since_unix_s=1_800_000_000.0,
    due_unix_s=1_800_000_000.0,
    reason="GivenUp",
    message="no data",
)


class Receiver:
    """Keeps what it gets; `/moved` leads elsewhere, `/busy` answers 503 once."""

    def __init__(self):
        self.got, self.is_busy = [], True
        self.url = ""

    async def take(self, request):
        self.got.append((request.path, request.content_type, await request.json()))
        if request.path == "/moved":
            raise web.HTTPFound("/elsewhere")
        if request.path == "/busy" and self.is_busy:
            self.is_busy = False
            raise web.HTTPServiceUnavailable
        return web.Response(status=204)


@asynccontextmanager
async def receiving():
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/{any}", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        yield receiver
    finally:
        await runner.cleanup()


async def deliver(address, tmp_path, form=NoticeFormat.JSON):
    """The webhook's queue, after it has done with one notice."""
    file = tmp_path / "address"
    file.write_text(address)
    webhook = NoticeQueue(Webhook(WebhookSettings(address_file=file, form=form)), sleep=lambda _: asyncio.sleep(0))
    webhook.offer(NOTICE)
    task = asyncio.create_task(webhook.run())
    async with asyncio.timeout(60):
        while not webhook.sent + webhook.dropped:  # noqa: ASYNC110 - another task does it
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return webhook


@pytest.mark.parametrize("form", NoticeFormat)
async def test_a_notice_arrives_as_json(tmp_path, form):
    async with receiving() as receiver:
        webhook = await deliver(f"{receiver.url}/hook", tmp_path, form)
        assert webhook.sent == 1
        assert receiver.got == [("/hook", "application/json", make_body(NOTICE, form))]


async def test_a_leader_tells_of_a_job_that_failed(tmp_path):
    """From the status that it wrote itself, once."""
    async with receiving() as receiver:
        file = tmp_path / "address"
        file.write_text(f"{receiver.url}/hook")
        settings = NoticeSettings(webhook=WebhookSettings(address_file=file))
        term = Term(notices=settings, spec={"runPolicy": {"activeDeadlineSeconds": 5}})
        await term.step(40)
        assert term.told("Failed") == ("True", "DeadlineExceeded")
        watching = asyncio.create_task(term.leading.notices.run())
        await wait_for_async("the notice", lambda: receiver.got)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        [(_, _, body)] = receiver.got
        assert (body["kind"], body["name"], body["reason"]) == ("JobFailed", "digits", "DeadlineExceeded")


async def test_a_receiver_that_is_busy_gets_it_again(tmp_path):
    async with receiving() as receiver:
        assert (await deliver(f"{receiver.url}/busy", tmp_path)).sent == 1
        assert len(receiver.got) == 2


async def test_no_redirect_is_followed(tmp_path):
    """It would tell the notice to whoever the answer names."""
    async with receiving() as receiver:
        assert (await deliver(f"{receiver.url}/moved", tmp_path)).dropped == 1
        assert [path for path, _, _ in receiver.got] == ["/moved"]


async def test_nobody_listens(tmp_path, caplog):
    async with receiving() as receiver:
        address = f"{receiver.url}/secret"
    assert (await deliver(address, tmp_path)).dropped == 1
    assert "it cannot be reached" in caplog.text
    assert "secret" not in caplog.text


async def test_an_address_without_a_host_is_told_without_quoting_it():
    with pytest.raises(AddressError) as refused:
        await post_json("http://", {})
    assert "http" not in str(refused.value)
