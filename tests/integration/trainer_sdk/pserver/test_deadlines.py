"""The thread that keeps a server's deadlines: nothing is held, cut or reported in time without it."""

import threading

from trainer_sdk.pserver.tables import bucket_load


class Full(list):
    """What the master is told does not go out any more."""

    def append(self, _):
        raise MemoryError


def test_an_error_in_the_thread_of_deadlines_ends_the_process_and_is_not_kept_silent(new_job, monkeypatch):
    """The process would go on and miss every deadline; another one restores its buckets."""
    monkeypatch.setattr(bucket_load, "REPORT_EVERY_S", 0.05)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    server = new_job(1).restore().servers[0]
    server.said = Full()
    clock = next(thread for thread in threading.enumerate() if thread.name == "deadlines")
    clock.join(20)
    assert [type(error) for error in server.broken] == [MemoryError]
    server.broken.clear()
