"""`python -m master`: the master of one job, configured by its environment (`master.process.master_config`).

Exit codes: 0 after SIGTERM or the parent's end, 2 for a setting or a folder that must be changed first, 70 for a bug,
75 when another master leads (start it again: it becomes a standby).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from contextlib import AsyncExitStack
from typing import Final

from master.api.checkpoints.folder_lock import hold_as_writer
from master.api.checkpoints.storage import open_storage
from master.api.errors import ContractError
from master.api.host.fd_limits import raise_limit
from master.api.host.log_lines import PlainFormatter
from master.api.master_status import JobStatus
from master.api.wire.hello import Hello
from master.durable.checkpoint_folder import CheckpointFolder
from master.errors import InvalidSettingError, PermanentError
from master.leadership.leader_identity import this_holder
from master.process.grpc_server import MasterServer
from master.process.leader_terms import LeaderTerms, SteppedDownError, describe
from master.process.master_config import ListenAddress, Settings, SocketAddress
from master.process.metrics import serve_metrics
from master.process.standby import stand_by
from master.store.etcd.etcd_store import EtcdStore
from master.store.memory_store import MemoryCluster
from master.store.store_port import StateStore
from master.term.counters import Counters

log: Final = logging.getLogger("master")

EXIT_SETTING: Final = 2
EXIT_BUG: Final = 70
EXIT_STEPPED_DOWN: Final = 75
STOP_GRACE_S: Final = 0.5
FOLDER_GRACE_S: Final = 2.0  # for calls in flight, after everything else has ended
PARENT_CHECK_S: Final = 0.5


class _Observed:
    """Source of the metrics of this process."""

    def __init__(self, server: MasterServer, counts: Counters) -> None:
        self._server = server
        self.counts = counts

    @property
    def stream_count(self) -> int:
        return self._server.term.stream_count if self._server.term else 0

    @property
    def waiting_write_count(self) -> int:
        return self._server.term.waiting_write_count if self._server.term else 0

    def try_status(self) -> JobStatus | None:
        return self._server.term.status() if self._server.term else None


def main() -> int:
    _set_up_logging()
    raise_limit()
    with asyncio.Runner() as runner:
        code = _serve(runner)
        _end_within(FOLDER_GRACE_S, code)
    return code


def _end_within(limit_s: float, code: int) -> None:
    """Ends the process after `limit_s` even if a call to the checkpoint folder hangs; a slow one is waited for."""
    last = threading.Timer(limit_s, os._exit, (code,))
    last.daemon = True
    last.start()


def _serve(runner: asyncio.Runner) -> int:
    """The exit code, once the lease is given back and no stream is open."""
    try:
        settings = Settings.from_environment(os.environ)
        logging.getLogger().setLevel(settings.log_level)
        runner.run(_run(settings))
    except SteppedDownError as error:
        log.warning("stepped down: %s", error)
        return EXIT_STEPPED_DOWN
    except (PermanentError, ContractError) as error:
        log.error("%s", error)  # noqa: TRY400  the message says what to do; a traceback would hide it
        return EXIT_SETTING
    except KeyboardInterrupt:
        return 0
    except Exception:
        log.exception("this master ends because of a bug; the cluster restarts it")
        return EXIT_BUG
    return 0


async def _run(settings: Settings) -> None:
    """Serves until a signal ends the process."""
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end.set)
    async with AsyncExitStack() as stack:
        store = _open_store(settings)
        stack.push_async_callback(store.close)
        try:
            storage = open_storage(settings.checkpoint_uri)
            folder = CheckpointFolder(storage, hold_as_writer(storage))
        except ContractError as error:
            raise InvalidSettingError("EDL_CHECKPOINT_URI", str(error), hint="Name a folder") from error
        if settings.is_standby and not await stand_by(store, end):
            return
        counts = Counters()
        server = MasterServer(hello=Hello(job=settings.job, software="edl"), token=settings.token)
        address = await server.start(settings.listen, settings.tls)
        stack.push_async_callback(server.stop, grace_s=STOP_GRACE_S)
        if settings.metrics_listen is not None:
            stack.callback(serve_metrics(_Observed(server, counts), settings.metrics_listen))
        gc.freeze()  # what was imported stays: a full collection over it would stop the writer for 10 to 30 ms
        _announce(settings, address)
        terms = LeaderTerms(settings=settings, store=store, folder=folder, server=server, counts=counts)
        serving = asyncio.create_task(terms.run(holder=this_holder(settings.name, address)))
        stop_signals = asyncio.create_task(_wait_for_end(end, settings.parent_pid))
        try:
            await asyncio.wait({serving, stop_signals}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, stop_signals):
                task.cancel()
            await asyncio.gather(serving, stop_signals, return_exceptions=True)
        for task in (serving, stop_signals):
            if not task.cancelled():
                task.result()


def _open_store(settings: Settings) -> StateStore:
    if settings.etcd is None:
        return MemoryCluster().store(settings.job)
    return EtcdStore(settings.etcd, settings.job)


def _announce(settings: Settings, address: ListenAddress | SocketAddress) -> None:
    log.info("%s listens on %s: %s", settings.name, address, describe(settings))
    if settings.address_file is not None:
        temporary = settings.address_file.with_name(f".{settings.address_file.name}.{os.getpid()}")
        temporary.write_text(f"{address}\n")
        temporary.replace(settings.address_file)


async def _wait_for_end(end: asyncio.Event, parent_pid: int | None) -> None:
    while not end.is_set():
        if parent_pid is not None and os.getppid() != parent_pid:
            log.info("the parent, process %d, is gone", parent_pid)
            return
        try:
            async with asyncio.timeout(PARENT_CHECK_S if parent_pid is not None else None):
                await end.wait()
        except TimeoutError:
            continue
    log.info("asked to end")


def _set_up_logging() -> None:
    """Log lines on stderr: `2026-11-21T09:30:00.123Z WARNING master.process.leader_terms: ...`"""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


if __name__ == "__main__":
    sys.exit(main())
