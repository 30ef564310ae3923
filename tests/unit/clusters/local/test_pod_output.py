"""Output of a pod: what a full disk costs its log is counted once."""

import contextlib
import os
import resource

from autoscaler.clusters.local.machine.pod_output import PodOutput


@contextlib.contextmanager
def room(size_bytes):
    """No file can be longer, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_bytes_that_the_log_has_told_of_are_not_told_again(tmp_path):
    """The disk has room for the notice of the first loss and is full again."""
    log = tmp_path / "pod.log"
    output = PodOutput(str(log))
    notice = b"\n[edl: 5 bytes are missing: File too large]\n"
    for size_bytes, data in ((10, b"a" * 15), (10 + len(notice) + 2, b"b" * 5), (1000, b"c")):
        os.write(output.pod_end, data)
        with room(size_bytes):
            output.copy()
    output.close_pod_end()
    output.close()

    assert log.read_bytes() == b"a" * 10 + notice + b"bb" + notice.replace(b"5", b"3") + b"c"


def test_bytes_missing_before_a_notice_could_be_written_are_added_up(tmp_path):
    """A notice that was cut off is written again, with all that is missing by then."""
    log = tmp_path / "pod.log"
    output = PodOutput(str(log))
    for size_bytes, data in ((10, b"a" * 15), (14, b"b" * 5), (1000, b"c")):
        os.write(output.pod_end, data)
        with room(size_bytes):
            output.copy()
    output.close_pod_end()
    output.close()

    assert log.read_bytes() == b"a" * 10 + b"\n[ed" + b"\n[edl: 10 bytes are missing: File too large]\nc"
