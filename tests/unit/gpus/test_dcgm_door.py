"""A DCGM exporter's page as a reading: figures within their ranges, and a page that stands still."""

from __future__ import annotations

import http.server
import socketserver
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from autoscaler.domain.gpu_reports import GpuVerdict
from autoscaler.gpus.agent.node_agent import NodeAgent
from autoscaler.gpus.driver.dcgm_door import STANDS_STILL_S, DcgmDoor, parse_page
from autoscaler.gpus.owners import DeviceClaim, DeviceOwners, HoldingPod
from autoscaler.gpus.readings import Absence, DriverFailure, FailureKind, NodeReading
from autoscaler.gpus.sample_outcomes import SampleOutcome
from autoscaler.gpus.verdicts import NodeHistory, VerdictRule, judge_node

UUID = "GPU-11111111-2222-3333-4444-555555555555"
LABELS = f'gpu="0",UUID="{UUID}",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",Hostname="n1",container="",pod="p"'


def page(*, util="0", engine="0.000000", energy="1000", labels=LABELS, **more):
    """`engine` None: the exporter tells no profiling counters; `more`: further fields without their prefix."""
    lines = "".join(f"DCGM_FI_DEV_{name}{{{labels}}} {value}\n" for name, value in more.items())
    if engine is not None:
        lines += f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} {engine}\n"
    return lines + (
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {util}\n"
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {energy}\n"
        f"DCGM_FI_DEV_SM_CLOCK{{{labels}}} 1410\n"
    )


@contextmanager
def exporter():
    """`serve(page)`, and its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        body = b""

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(Handler.body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()

        def serve(text):
            Handler.body = text.encode()

        try:
            yield serve, f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join()


def test_figures_are_read_and_what_the_page_does_not_tell_is_absent():
    """Percent, a ratio, and an energy counter; processes are none of its business."""
    (one,) = parse_page(page(util="37", engine="0.5", energy="123456789"))
    assert (one.uuid, one.model, one.minor) == (UUID, "NVIDIA A100-SXM4-80GB", 0)
    assert (one.utilisation_percent, one.gpm_percent, one.energy_mj) == (37, 50.0, 123456789)
    assert one.processes is Absence.NOT_SUPPORTED


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf", "2147483632"])
def test_an_impossible_figure_is_absurd(value):
    """DCGM writes large numbers where it has none; that may hide work."""
    (one,) = parse_page(page(util=value))
    assert one.utilisation_percent is Absence.ABSURD


@pytest.mark.parametrize(
    ("figures", "utilisation"),
    [
        ({"ENC_UTIL": "40", "DEC_UTIL": "55"}, 55),
        ({"ENC_UTIL": "0.2", "DEC_UTIL": "0"}, 1),
        ({"ENC_UTIL": "0", "DEC_UTIL": "0"}, 0),
        ({"ENC_UTIL": "2147483632", "DEC_UTIL": "0"}, Absence.ABSURD),
        ({"ENC_UTIL": "2147483632", "DEC_UTIL": "3"}, 3),
        ({"util": "NaN", "ENC_UTIL": "7"}, 7),
    ],
)
def test_encoders_and_decoders_work_too(figures, utilisation):
    """A transcoding T4 stays near its idle power, and its own utilisation near 0."""
    (one,) = parse_page(page(**figures))
    assert one.utilisation_percent == utilisation


def test_a_divided_gpu_is_unknown_and_one_without_energy_is_left_out():
    """An instance's line has the UUID of its GPU: its figures are not those of the GPU."""
    (one,) = parse_page(page(labels=f'{LABELS},GPU_I_ID="3"'))
    assert one.utilisation_percent is Absence.NOT_SUPPORTED
    assert parse_page('DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1"} 3\n') == ()


@pytest.mark.parametrize("text", ["", "<html>", "DCGM_FI_DEV_GPU_UTIL{UUID=", "x" * (5 << 20)])
def test_another_page_is_a_failure(text):
    """Nothing is known then, so nothing is idle."""
    with exporter() as (serve, url):
        serve(text)
        assert isinstance(DcgmDoor(url).read(), DriverFailure)


@contextmanager
def answering(answer):
    """The URL of a server whose answer to each connection is what `answer(socket, is_over)` writes."""
    is_over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(4096)
            with suppress(OSError):  # the reader has given up
                answer(self.request, is_over)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        finally:
            is_over.set()
            server.shutdown()
            thread.join()


def drip(connection, is_over):
    """A byte now and then, each within any time limit of a single read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not is_over.wait(0.05):
        connection.sendall(b"#")


def hang_up(connection, _):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nDCGM")


@pytest.mark.parametrize("answer", [drip, lambda _, is_over: is_over.wait()])
def test_an_exporter_that_does_not_end_its_answer_is_given_up_at_the_deadline(answer):
    """It says nothing, or a little at a time: the whole answer has the time, not each read."""
    with answering(answer) as url:
        door, began_s = DcgmDoor(url, deadline_s=0.3), time.monotonic()
        found = [door.read() for _ in range(2)]  # the second while the first still hangs
        assert time.monotonic() - began_s < 20
    assert [(type(one), one.kind) for one in found] == [(DriverFailure, FailureKind.SILENT)] * 2


@pytest.mark.parametrize(
    "answer",
    [
        hang_up,
        lambda connection, _: None,
        lambda connection, _: connection.sendall(b"\x00" * 4096),
        lambda connection, _: connection.sendall(b"HTTP/1.1 503 Busy\r\n\r\n" + page().encode()),
        lambda connection, _: connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + page().encode() + b"\xff"),
    ],
)
def test_an_answer_that_breaks_off_or_is_an_error_is_a_failure(answer):
    """No reading is made of a part of a page."""
    with answering(answer) as url:
        found = DcgmDoor(url).read()
    assert isinstance(found, DriverFailure)
    assert found.kind is FailureKind.FAILED


def test_a_redirect_is_not_followed():
    """A page of the node is read, and not what somebody on it points to."""
    with exporter() as (serve, elsewhere):
        serve(page())
        location = f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\n\r\n".encode()
        with answering(lambda connection, _: connection.sendall(location)) as url:
            assert isinstance(DcgmDoor(elsewhere).read(), NodeReading)
            assert isinstance(DcgmDoor(url).read(), DriverFailure)


def test_nobody_who_listens_is_a_failure():
    """The exporter is restarted, or the node has none."""
    with exporter() as (_, url):
        door = DcgmDoor(url)
    assert isinstance(door.read(), DriverFailure)


def test_a_page_that_stands_still_for_long_is_silence(monkeypatch):
    """The exporter hangs, and its page is served on: what it says of now is not known."""
    with exporter() as (serve, url):
        door = DcgmDoor(url)
        serve(page(energy="1000"))
        first = door.read()
        began_ns = time.monotonic_ns()
        monkeypatch.setattr(time, "monotonic_ns", lambda: began_ns + int((STANDS_STILL_S - 1) * 1e9))
        assert door.read() is first
        monkeypatch.setattr(time, "monotonic_ns", lambda: began_ns + int((STANDS_STILL_S + 1) * 1e9))
        found = door.read()
        assert isinstance(found, DriverFailure)
        assert found.kind is FailureKind.SILENT
        serve(page(energy="1001"))
        assert isinstance(door.read(), NodeReading)


def test_many_gpus_are_refused():
    """A page may be anybody's."""
    lines = "".join(f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="GPU-{n}"}} 1\n' for n in range(129))
    with pytest.raises(ValueError, match="128 GPUs"):
        parse_page(lines)


def test_a_page_that_stands_still_is_the_reading_before():
    """It says nothing of the time since, and neither begins a window anew nor adds to it."""
    with exporter() as (serve, url):
        door = DcgmDoor(url)
        serve(page(energy="1000"))
        first = door.read()
        assert isinstance(first, NodeReading)
        assert door.read() is first
        agent = NodeAgent(door, NoOwners(), VerdictRule())
        assert agent.sample() is agent.sample()
        serve(page(energy="2000"))
        assert door.read() is not first


class NoOwners:
    def read(self, devices):
        return DeviceOwners()


HELD_BY_ONE = {UUID: (DeviceClaim(pod=HoldingPod(namespace="ns", name="one")),)}


@pytest.mark.parametrize(
    ("figures", "claims", "outcome", "verdict"),
    [
        ({}, HELD_BY_ONE, SampleOutcome.LOW, GpuVerdict.HELD),
        ({}, {}, SampleOutcome.LOW, GpuVerdict.UNKNOWN),
        ({"engine": "0.2"}, {}, SampleOutcome.WORKING, GpuVerdict.ACTIVE),
        ({"DEC_UTIL": "12"}, HELD_BY_ONE, SampleOutcome.WORKING, GpuVerdict.ACTIVE),
        ({"engine": None}, HELD_BY_ONE, SampleOutcome.TOO_FEW, GpuVerdict.UNKNOWN),
        ({"engine": None, "util": "3"}, HELD_BY_ONE, SampleOutcome.WORKING, GpuVerdict.ACTIVE),
    ],
    ids=["held", "nobody's", "computes", "decodes", "the last second alone", "work in the last second"],
)
def test_verdicts_rest_on_what_the_page_tells(figures, claims, outcome, verdict):
    """Two sources that tell of the whole interval; without the list of processes no GPU is free."""
    history, rule = NodeHistory(), VerdictRule(window_s=120.0, longest_gap_s=120.0)
    for number in range(6):
        text = page(energy=str(number * 30 * 60_000), **figures)
        reading = NodeReading(at_ns=number * 30 * 10**9, devices=parse_page(text))
        judged = judge_node(history, reading, DeviceOwners(claims=claims), rule)
        history = judged.history
    (device,) = judged.verdicts
    assert device.verdict is verdict
    assert device.outcome is outcome
