"""Logs of pods: bounded while their writers go on, and still read rightly afterwards."""

import socket

from autoscaler.cli.local.run_records import read_log
from autoscaler.clusters.local.machine.pod_logs import LONGEST_LOG_BYTES, read_tail, shorten, shorten_long_ones
from autoscaler.clusters.local.run_files.run_folder import make_run_folder


def test_a_log_that_grows_too_long_is_shortened_and_its_writer_goes_on(tmp_path):
    """The newest lines stay, the file says what is gone, and nothing is done to others."""
    long, short = tmp_path / "a.log", tmp_path / "b.log"
    short.write_text("short\n")
    with long.open("ab") as writer:
        writer.truncate(LONGEST_LOG_BYTES)
        writer.write(b"\nthe newest line\n")
        writer.flush()
        shorten_long_ones(tmp_path)
        writer.write(b"written later\n")
    lines = long.read_bytes().splitlines()
    assert lines[0].startswith(b"[edl: the first 67108")
    assert lines[1:] == [b"the newest line", b"written later"]
    assert short.read_text() == "short\n"


def test_a_shortened_log_still_has_last_words(tmp_path):
    """Where the process' output began is gone; its end is not."""
    log = tmp_path / "pod.log"
    log.write_bytes(b"old\n" * (4 << 20) + b"ValueError: the reason\n")
    began = log.stat().st_size - 30
    shorten(log)
    assert log.stat().st_size < began
    assert "ValueError: the reason" in read_tail(log, began)


def test_following_a_log_goes_on_after_it_was_shortened(tmp_path):
    """`edl logs -f` reads the shorter file from its beginning instead of waiting for it to grow again."""
    folder = make_run_folder(tmp_path, "job", described={})
    log = folder.log_of("a")
    log.write_text("one\ntwo\nthree\n")
    with socket.socket(socket.AF_UNIX) as run:
        run.bind(str(folder.control_socket()))
        run.listen()
        reading = read_log(log, 2, folder)
        assert next(reading) == "two\nthree\n"
        log.write_text("four\n")
        assert next(reading) == "four\n"
