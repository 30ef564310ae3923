"""The stream to the master beside a script."""

import random
import threading

from master.api.wire.hello import Hello
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
