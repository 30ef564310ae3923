"""Readings from a DCGM exporter's page, in place of the driver: for nodes where one runs anyway (ADR 0284).

The exporter renews its figures every 30 s by default, and the page does not say when.  So a page whose energy counters
stand still is the page before, and its reading is returned again as the same object.  Utilisation is that of the last
second of 30, so that it proves work and no idleness, unless the graphics engine's activity tells of all of them.  The
page tells no processes and no instances of divided GPUs: a GPU that no pod claims is unknown, and so is a divided one.
"""

from __future__ import annotations

import math
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from autoscaler.errors import PermanentError, error_text
from autoscaler.gpus.driver.deadline import CallLateError, DeadlineCaller
from autoscaler.gpus.readings import Absence, DeviceReading, DriverFailure, FailureKind, NodeReading

DEADLINE_S: Final = 3.0
STANDS_STILL_S: Final = 120.0
"""Age of a page that is taken for a broken exporter's: four of its intervals."""

MOST_BYTES: Final = 4 << 20
MOST_DEVICES: Final = 128
_LONGEST_LABEL: Final = 96

_UTILISATION: Final = "DCGM_FI_DEV_GPU_UTIL"  # percent; nothing of encoders and decoders
_VIDEO: Final = ("DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL")  # percent
_ENGINE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # ratio
_ENERGY: Final = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"  # mJ since the driver was loaded
_MEMORY: Final = "DCGM_FI_DEV_FB_USED"  # MiB
_READ: Final = frozenset({_UTILISATION, *_VIDEO, _ENGINE, _ENERGY, _MEMORY})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An exporter that sends its reader elsewhere is none: a page of the node is read, and no other host's."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Answer with the error that the redirect is."""


class DcgmDoor:
    """Reads one exporter.  One thread may use it."""

    def __init__(self, url: str, *, deadline_s: float = DEADLINE_S) -> None:
        """Raises PermanentError for a URL that is none of HTTP."""
        if not url.startswith(("http://", "https://")):
            raise PermanentError(f"--dcgm-url {url}: write http://HOST:PORT/metrics")
        self._url = url
        self._deadline_s = deadline_s
        self._caller = DeadlineCaller()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
        self._last: NodeReading | None = None

    def read(self) -> NodeReading | DriverFailure:
        """All GPUs of the page, or why nothing is known of them; the reading before while the page stands still."""
        at_ns = time.monotonic_ns()
        try:
            page = self._caller.call(self._fetch, deadline_s=self._deadline_s)
            devices = parse_page(page)
        except CallLateError as error:
            return _failure(at_ns, FailureKind.SILENT, f"the DCGM exporter at {self._url} does not answer: {error}")
        except Exception as error:  # noqa: BLE001 - an answer that nobody foresaw is no reason to end
            return _failure(at_ns, FailureKind.FAILED, f"the DCGM exporter at {self._url}: {error_text(error)}")
        if not devices:
            return _failure(at_ns, FailureKind.FAILED, f"the DCGM exporter at {self._url} tells no {_ENERGY}")
        last = self._last
        if last is not None and _energies(last.devices) == _energies(devices):
            if at_ns - last.at_ns > STANDS_STILL_S * 1e9:
                message = f"the DCGM exporter at {self._url} has renewed nothing for {STANDS_STILL_S:g} s"
                return _failure(at_ns, FailureKind.SILENT, message)
            return last
        self._last = NodeReading(at_ns=at_ns, devices=devices)
        return self._last

    def _fetch(self) -> str:
        """In the thread that may be given up."""
        try:
            with self._opener.open(self._url, timeout=self._deadline_s) as answer:
                body: bytes = answer.read(MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise
        if len(body) > MOST_BYTES:
            raise ValueError(f"the page has more than {MOST_BYTES >> 20} MiB")
        return body.decode()


def parse_page(page: str) -> tuple[DeviceReading, ...]:
    """The GPUs of a page, by their number; those without an energy counter are left out.  Pure.

    Raises:
        ValueError: it is no page of Prometheus, or has too many GPUs.
    """
    wanted = "\n".join(line for line in page.splitlines() if line.partition("{")[0] in _READ)
    figures: dict[str, dict[str, float]] = {}
    labels: dict[str, Mapping[str, str]] = {}
    divided: set[str] = set()
    for family in text_string_to_metric_families(wanted + "\n"):
        for sample in family.samples:
            uuid = sample.labels.get("UUID", "")
            if not 0 < len(uuid) <= _LONGEST_LABEL or not uuid.isprintable():
                continue
            if sample.labels.get("GPU_I_ID"):
                divided.add(uuid)
            labels[uuid] = sample.labels
            figures.setdefault(uuid, {})[sample.name] = float(sample.value)
            if len(figures) > MOST_DEVICES:
                raise ValueError(f"the page has more than {MOST_DEVICES} GPUs")
    read = (
        _reading(uuid, labels[uuid], {} if uuid in divided else told)
        for uuid, told in figures.items()
        if _ENERGY in told or uuid in divided
    )
    return tuple(sorted(read, key=lambda one: (one.minor is None, one.minor, one.uuid)))


def _reading(uuid: str, labels: Mapping[str, str], told: Mapping[str, float]) -> DeviceReading:
    number = labels.get("device", "").removeprefix("nvidia")
    engine = _figure(told, _ENGINE, 1.0)
    energy_mj = _figure(told, _ENERGY, 1e18)
    memory_mib = _figure(told, _MEMORY, 1e7)
    return DeviceReading(
        uuid=uuid,
        model=labels.get("modelName", "")[:_LONGEST_LABEL],
        minor=int(number) if number.isdecimal() and len(number) < 5 else None,
        utilisation_percent=_utilisation(told),
        is_utilisation_brief=isinstance(engine, Absence),
        work=Absence.NOT_SUPPORTED,
        processes=Absence.NOT_SUPPORTED,
        gpm_percent=engine if isinstance(engine, Absence) else 100 * engine,
        energy_mj=energy_mj if isinstance(energy_mj, Absence) else int(energy_mj),
        memory_used_bytes=memory_mib if isinstance(memory_mib, Absence) else int(memory_mib) << 20,
    )


def _utilisation(told: Mapping[str, float]) -> int | Absence:
    """The largest of the GPU's own and of its encoders and decoders, which not every exporter tells."""
    found = [_figure(told, name, 100.0) for name in (_UTILISATION, *(name for name in _VIDEO if name in told))]
    highest = max((one for one in found if not isinstance(one, Absence)), default=0.0)
    absent = next((one for one in found if isinstance(one, Absence)), None)
    return absent if absent is not None and highest == 0.0 else math.ceil(highest)


def _figure(told: Mapping[str, float], name: str, most: float) -> float | Absence:
    """The figure within its range; DCGM's blank values lie far above it."""
    value = told.get(name)
    if value is None:
        return Absence.NOT_SUPPORTED
    return value if 0.0 <= value <= most else Absence.ABSURD


def _energies(devices: Iterable[DeviceReading]) -> dict[str, Any]:
    return {one.uuid: one.energy_mj for one in devices}


def _failure(at_ns: int, kind: FailureKind, message: str) -> DriverFailure:
    return DriverFailure(at_ns=at_ns, kind=kind, message=message)
