"""Copies of buckets on their way: what goes wrong with one keeps no other from its target."""

import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from master.api.identities import BucketId, Incarnation, Lineage, MemberName, Version
from master.api.messages.from_members import Installed
from master.api.positions import EMPTY
from tests.integration.trainer_sdk.pserver.in_process_servers import BUCKETS, PATIENCE_S, TABLES, span
from trainer_sdk.errors import WireError
from trainer_sdk.pserver.core.server_events import SendCopy
from trainer_sdk.pserver.tables.layout import Layout
from trainer_sdk.pserver.tables.model import Model
from trainer_sdk.pserver.transfer import bucket_sender
from trainer_sdk.pserver.transfer.bucket_sender import BucketSender, SenderHooks, pack_bucket
from trainer_sdk.pserver.wire.peer_heads import CopyStatus, decode_copy_answer, encode_copy
from trainer_sdk.transport.frames import FrameChannel, FrameKind, WireLimits
from trainer_sdk.transport.handshake import PeerRole, connect_handshake, welcome_client
from trainer_sdk.transport.security import Security

MODEL = Model(Layout.of(TABLES, BUCKETS), span(0, BUCKETS))


def order_for(server, bucket):
    return SendCopy(
        lineage=Lineage(1),
        bucket=BucketId(bucket),
        version=Version(1),
        target=server.place,
        is_final=True,
        is_full=True,
        applied=EMPTY,
        skipped=EMPTY,
    )


def parcel_of(order):
    return pack_bucket(order, list(MODEL.content(order.bucket)), MODEL.layout)


class Sender:
    """Couriers, how often each bucket was packed, and which order ended how; `pack` may be another one's."""

    def __init__(self, pack=parcel_of, security=None):
        self.packed, self.ends = [], []
        self._pack = pack
        post = SenderHooks(pack=self._count, full_copy_needed=lambda _: None, ended=self._note)
        self.bucket_sender = BucketSender(MemberName("sender"), security or Security(), post)

    def _note(self, order, head):
        self.ends.append((order.bucket, order.is_final, head is not None))

    def _count(self, order):
        self.packed.append(order.bucket)
        return self._pack(order)


@pytest.fixture
def target(new_job):
    """The second of two servers: buckets of the first may come."""
    return new_job(2).restore().servers[1]


def test_an_unexpected_error_loses_one_copy_and_no_other(target):
    """No memory to pack one bucket: those after it arrive."""

    def pack(order):
        if order.bucket == 0:
            raise MemoryError
        return parcel_of(order)

    sender = Sender(pack)
    for bucket in (0, 1, 2):
        sender.bucket_sender.send(order_for(target, bucket))
    target.wait_for(Installed, count=2)
    assert sorted(said.bucket for said in target.all_of(Installed)) == [1, 2]
    sender.bucket_sender.close()


def test_nothing_is_taken_once_the_sender_is_closed(target):
    """Who asks is told so: the order is not on its way, and nobody waits for it."""
    sender = Sender()
    sender.bucket_sender.close()
    assert sender.bucket_sender.send(order_for(target, 0)) is False
    assert sender.packed == []


def test_a_thread_that_could_not_start_is_replaced_by_the_next_order(target, tmp_path):
    """Certificates are away for a moment: what was ordered then is lost, what is ordered later goes."""
    fails = threading.Event()

    class Away(Security):
        def client_context(self):
            if not fails.is_set():
                fails.set()
                raise FileNotFoundError("ca.crt")
            return super().client_context()

    sender = Sender(security=Away())
    sender.bucket_sender.send(order_for(target, 0))
    assert fails.wait(PATIENCE_S)
    while not target.all_of(Installed):
        sender.bucket_sender.send(order_for(target, 1))
        threading.Event().wait(0.01)
    sender.bucket_sender.close()


def test_what_has_no_thread_is_not_left_to_nobody(target, monkeypatch):
    """The system gives no thread for a moment: the next order starts one."""
    sender = Sender()
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="thread"):
            sender.bucket_sender.send(order_for(target, 0))
    assert sender.bucket_sender.send(order_for(target, 1))
    assert target.wait_for(Installed).bucket == 1
    sender.bucket_sender.close()


def no_thread(_):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("fails", [False, True])
def test_a_repeat_of_what_is_on_its_way_is_sent_only_if_that_does_not_arrive(target, fails):
    """The master asks again after seconds; a slow link must not carry each bucket twice."""
    is_under_way, may_go_on = threading.Event(), threading.Event()

    def pack(order):
        if not is_under_way.is_set():
            is_under_way.set()
            assert may_go_on.wait(PATIENCE_S)
            if fails:
                raise MemoryError
        return parcel_of(order)

    sender = Sender(pack)
    sender.bucket_sender.send(order_for(target, 0))
    assert is_under_way.wait(PATIENCE_S)
    sender.bucket_sender.send(order_for(target, 0))
    sender.bucket_sender.send(order_for(target, 1))
    may_go_on.set()
    target.wait_for(Installed, count=2)
    assert sorted(said.bucket for said in target.all_of(Installed)) == [0, 1]
    assert sender.packed == ([0, 0, 1] if fails else [0, 1])
    sender.bucket_sender.close()


def test_a_target_that_answers_a_byte_now_and_then_has_no_more_time_than_another(target, monkeypatch):
    """Each socket operation is in time, all of them together are not: the connection is cut at the deadline."""
    monkeypatch.setattr(bucket_sender, "BUDGET_S", 0.5)
    was_cut = threading.Event()

    def answer_slowly(listening):
        while not was_cut.is_set():
            sock, _ = listening.accept()
            with sock, suppress(OSError, WireError):
                channel = FrameChannel(sock, WireLimits())
                welcome_client(channel, Security(), target.incarnation)  # on a busy machine it is cut here already
                sock.sendall(b"EDLp\x0a\0\0\0\0\0\x0f\0" + bytes(8))  # an answer with a head of 983,040 bytes
                try:
                    while True:
                        sock.sendall(b"?")
                        was_cut.wait(0.05)
                except OSError:
                    was_cut.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=answer_slowly, args=(listening,), daemon=True)
        answering.start()
        sender = Sender()
        slow = replace(target.place, address=f"127.0.0.1:{listening.getsockname()[1]}")
        until_s = time.monotonic() + PATIENCE_S
        while not was_cut.wait(0.1):
            assert time.monotonic() < until_s
            sender.bucket_sender.send(replace(order_for(target, 0), target=slow))
        sender.bucket_sender.close()
        answering.join(PATIENCE_S)


def bring(server, role, *parcels):
    """The frames with which one of this role is answered."""
    with socket.create_connection(("127.0.0.1", server.listener.port), timeout=PATIENCE_S) as sock:
        channel = FrameChannel(sock, WireLimits())
        connect_handshake(channel, Security(), "one", role)
        for parcel in parcels:
            channel.send(FrameKind.COPY, encode_copy(parcel.head), parcel.body)
            yield channel.receive()


def test_nobody_but_a_server_may_bring_a_bucket(target):
    """A trainer's mistake must not put a bucket in the place of the true one."""
    parcel = parcel_of(order_for(target, 0))
    (answer,) = bring(target, PeerRole.TRAINER, parcel)
    assert answer.kind is FrameKind.REFUSED
    assert target.all_of(Installed) == []


def test_a_copy_is_judged_by_its_head_and_its_body_passed_over_if_nobody_wants_it(target):
    """Not even its digest is looked at; the next one on that connection is taken."""
    wanted = parcel_of(order_for(target, 0))
    unwanted = replace(wanted.head, target=Incarnation("another"), digest="of something else")
    body = [memoryview(bytes(300_000))] * 2
    answers = list(bring(target, PeerRole.SERVER, wanted._replace(head=unwanted, body=body), wanted, wanted))
    assert {decode_copy_answer(answer.head) for answer in answers} == {CopyStatus.ARRIVED}
    target.wait_for(Installed, count=2)
