"""Notices by mail over real SMTP: encrypted, signed in, in time, and the password stands nowhere."""

import asyncio
import logging
import ssl
from dataclasses import replace

import pytest

from autoscaler.operator.notices.due_notices import NoticeKind, Occasion
from autoscaler.operator.notices.mail import Mail
from autoscaler.operator.notices.mail_settings import MailSettings, MailTls
from autoscaler.operator.notices.notice_queue import ATTEMPTS, DeliveryError, NoticeQueue
from tests.harness.certificates import ClusterAuthority
from tests.harness.waiting import wait_for_async
from tests.integration.operator.mail_server import MailServer, mail_server

PASSWORD = "s3cret-Word"
NOTICE = Occasion(
    kind=NoticeKind.GPUS_GIVEN_BACK,
    namespace="nb",
    name="alice-0",
    uid="7f",
    since_unix_s=1_800_000_000.0,
    due_unix_s=1_800_000_000.0,
    message="nothing computes on them\n.\nand no line ends the message",
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return ClusterAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority):
    """The server's side of TLS, with a certificate for 127.0.0.1."""
    pair = authority.issue("mail", "mail", addresses=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


@pytest.fixture
def settings(authority, tmp_path):
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    return MailSettings(
        host="127.0.0.1",
        port=0,
        sender="edl@b.example",
        receivers=("ann@b.example", "team@c.example"),
        user="edl",
        password_file=password,
        ca_file=authority.certificate,
    )


async def bring(settings, server):
    await Mail(replace(settings, port=server.port), page="https://edl.example").send(NOTICE)


@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_notice_arrives_over_tls_by_a_user_with_a_password(settings, tls, is_encrypted):
    server = MailServer(tls=tls, user="edl", password=PASSWORD)
    async with mail_server(server, is_encrypted=is_encrypted):
        await bring(replace(settings, tls=MailTls.TLS if is_encrypted else MailTls.STARTTLS), server)
    [message] = server.messages
    assert message["Subject"] == "Pod nb/alice-0 is about to give back unused GPUs"
    content = message.get_content()
    assert "edl keep alice-0 -n nb --for 2h" in content
    assert "https://edl.example/pods/nb/alice-0" in content
    assert server.receivers == ["ann@b.example", "team@c.example"]
    assert [one for one in server.commands if one.lstrip("*") in {"AUTH", "MAIL", "DATA"}] == [
        "*AUTH",
        "*MAIL",
        "*DATA",
    ]


async def test_a_server_without_tls_is_told_nothing_unless_that_is_asked_for(settings, tls):
    """Who stands between could otherwise take the offer of TLS away, and read user and password."""
    server = MailServer(tls=tls, offers_starttls=False)
    async with mail_server(server):
        with pytest.raises(DeliveryError, match="does not offer STARTTLS"):
            await bring(settings, server)
        assert set(server.commands) <= {"EHLO", "QUIT"}
        await bring(replace(settings, tls=MailTls.NONE, user="", password_file=None), server)
    assert len(server.messages) == 1


async def test_a_certificate_of_another_authority_is_not_trusted(settings, tls, tmp_path):
    server, other = MailServer(tls=tls), ClusterAuthority(tmp_path / "other")
    async with mail_server(server):
        with pytest.raises(DeliveryError, match="SSLCertVerificationError"):
            await bring(replace(settings, ca_file=other.certificate), server)
        assert server.messages == []


async def test_a_wrong_password_is_not_tried_again_and_stands_nowhere(settings, tls, caplog):
    """The server here says it back, as some do."""
    server = MailServer(tls=tls, user="edl", password="another")
    caplog.set_level(logging.DEBUG)
    async with mail_server(server):
        queue = await run_queue(replace(settings, port=server.port))
    assert (queue.dropped, server.commands.count("*AUTH")) == (1, 1)
    assert "it answers 535 to user and password" in caplog.text
    assert PASSWORD not in caplog.text


async def test_a_password_that_comes_late_counts_at_once(settings, tls):
    server = MailServer(tls=tls, user="edl", password=PASSWORD)
    settings.password_file.unlink()
    async with mail_server(server):
        with pytest.raises(DeliveryError, match="password cannot be read") as refused:
            await bring(settings, server)
        assert refused.value.may_retry
        settings.password_file.write_text(PASSWORD)
        await bring(settings, server)
    assert len(server.messages) == 1


async def run_queue(settings):
    """The queue, after it has done with one notice."""
    queue = NoticeQueue(Mail(settings), sleep=lambda _: asyncio.sleep(0))
    queue.offer(NOTICE)
    running = asyncio.create_task(queue.run())
    await wait_for_async("the notice to be sent or dropped", lambda: queue.sent + queue.dropped)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return queue


@pytest.mark.parametrize(
    ("answers", "sent", "tries"),
    [
        ({"GREETING": ["421 busy"]}, 1, 2),
        ({"MAIL": ["451 later"]}, 1, 2),
        ({"RCPT": ["450 later", "450 later"]}, 1, 2),  # greylisting
        ({"RCPT": ["550 nobody"]}, 1, 1),  # the other one got it
        ({"RCPT": ["550 nobody", "550 nobody"]}, 0, 1),
        ({"END": ["554 no"]}, 0, 1),
        ({"QUIT": ["500 what"]}, 1, 1),  # it has the message
        ({"GREETING": ["421 busy"] * ATTEMPTS}, 0, ATTEMPTS),
    ],
)
async def test_what_is_refused_is_not_sent_again_and_what_may_come_later_is(settings, tls, answers, sent, tries):
    server = MailServer(tls=tls, user="edl", password=PASSWORD, answers=answers)
    begun = []
    answer_one = server.serve

    async def counted(reader, writer):
        begun.append(1)
        await answer_one(reader, writer)

    server.serve = counted
    async with mail_server(server):
        queue = await run_queue(replace(settings, port=server.port))
    assert (queue.sent, queue.dropped, len(begun)) == (sent, 1 - sent, tries)


@pytest.mark.parametrize("silent_at", ["EHLO", "STARTTLS", "AUTH", "DATA"])
async def test_a_server_that_hangs_holds_no_thread_once_the_deadline_has_passed(settings, tls, silent_at):
    """At each step of the exchange, inside TLS and outside: its socket is shut, and its thread ends."""
    server = MailServer(tls=tls, user="edl", password=PASSWORD, silent_at=silent_at)
    async with mail_server(server):
        sending = asyncio.create_task(bring(settings, server))
        await wait_for_async("the step", lambda: silent_at in "".join(server.commands))
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        async with asyncio.timeout(6):
            await server.closed.wait()
    assert server.messages == []
