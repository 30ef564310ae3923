"""The stream to the master beside a script."""

import asyncio
import random
import threading

from master.api.messages.from_members import Leave, RegisterTrainer
from master.api.wire.hello import Hello
from tests.harness.master_process import JOB, MasterProcess, running
from trainer_sdk.master_stream import MasterAddress, MasterStream


class Broken:
    """Counts the attempts that failed."""

    def __init__(self):
        self.attempts, self.enough = 0, threading.Event()

    def stream_broken(self, reason):
        self.attempts += 1
        if self.attempts == 3:
            self.enough.set()


def test_attempts_to_reach_a_master_draw_none_of_the_scripts_random_numbers(tmp_path):
    """A script that seeds Python's generator gets the same numbers, whether or not its master was away."""
    before = random.getstate()
    listener = Broken()
    stream = MasterStream(listener)
    stream.connect(MasterAddress(target=f"unix:{tmp_path}/nobody", hello=Hello(job="j"), token="t", tls_dir=""))
    try:
        assert listener.enough.wait(30)
    finally:
        stream.close(farewell_s=0)
    assert random.getstate() == before


class Unwritable:
    """Registers, and once it is answered sends what is no text of UTF-8."""

    def __init__(self):
        self.stream, self.refusal, self.was_told = None, "", threading.Event()

    def stream_opened(self):
        self.stream.send((RegisterTrainer(name="t", ordinal=0, incarnation="i"),))

    def received(self, messages):
        self.stream.send((Leave(reason="caf\udce9"),))

    def stream_broken(self, reason):
        """Says nothing: the stream may break first."""

    def refused(self, reason):
        self.refusal = reason
        self.was_told.set()


async def test_message_that_cannot_be_encoded_is_told(tmp_path):
    """Its writer ended unseen, and nothing that the trainer sent later arrived."""
    async with running(MasterProcess(tmp_path)) as (master,):
        listener = Unwritable()
        listener.stream = stream = MasterStream(listener)
        stream.connect(MasterAddress(target=master.address, hello=Hello(job=JOB), token="", tls_dir=""))
        try:
            assert await asyncio.to_thread(listener.was_told.wait, 30)
        finally:
            stream.close(farewell_s=0)
    assert "UnicodeEncodeError" in listener.refusal
