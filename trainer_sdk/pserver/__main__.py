"""`python -m trainer_sdk.pserver`: one parameter server, configured by `trainer_sdk.environment`.

The server holds no model until the job's master orders one (RESTORE).  It may be killed at any moment: its buckets
then come from the last checkpoint.  At SIGTERM it notifies the master and stays until other servers have its buckets,
or its grace period is nearly over (`core.shutdown`); a second SIGTERM ends it at once.  Its exit code shows whether
the job still needs its buckets.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Final

from master.api.checkpoints.folder_lock import hold_as_writer
from master.api.checkpoints.storage import open_storage
from master.api.errors import StorageError
from master.api.host.fd_limits import raise_limit
from master.api.host.log_lines import PlainFormatter, escape_controls
from master.api.identities import Incarnation, MemberName
from master.api.wire.hello import Hello
from trainer_sdk.environment import Environment, parse_environment
from trainer_sdk.errors import PermanentError, UsageError
from trainer_sdk.master_stream import MasterAddress
from trainer_sdk.pserver.core.shutdown import (
    ParentDied,
    ShutdownEvent,
    ShutdownState,
    SigintReceived,
    SigtermReceived,
    after_event,
    at_time,
)
from trainer_sdk.pserver.process.control_stream import ControlStream, ServerIdentity
from trainer_sdk.pserver.process.data_listener import DataListener
from trainer_sdk.pserver.process.parameter_server import ParameterServer
from trainer_sdk.pserver.shell import ServerContext
from trainer_sdk.transport.frames import WireLimits
from trainer_sdk.transport.listen_address import listen
from trainer_sdk.transport.security import Security

log = logging.getLogger("trainer_sdk.pserver")

EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3
EXIT_BROKEN: Final = 70  # EX_SOFTWARE
EXIT_OWNING: Final = 75  # EX_TEMPFAIL: others do not have its buckets
# Bounds each wait of the main thread: a signal between Python's last look at its flag and the wait is noticed at the
# wait's end only. The parent is checked this often, too.
_CHECK_S: Final = 1.0
_SWITCH_S: Final = 0.0005  # the longest that a push waits for a thread that packs a bucket; Python's default is 5 ms


class _Signalled:
    """SIGTERM, as the signal handler queues it: a handler may take no lock."""


def main() -> int:
    """Runs the server; returns the exit code.

    0: released, or terminated; 75: terminated while the job still needed its buckets; 3: refused by the master; 2:
    wrong environment; 70: a bug.
    """
    sys.setswitchinterval(_SWITCH_S)
    raise_limit()
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        return _run(os.environ)
    except (PermanentError, StorageError) as error:
        sys.stderr.write(f"parameter server: {error}\n")
        return EXIT_USAGE


def _run(variables: Mapping[str, str]) -> int:
    environment = parse_environment(variables, role="server")
    if not environment.master or not environment.checkpoint_uri:
        missing = "EDL_CHECKPOINT_URI" if environment.master else "EDL_MASTER"
        raise UsageError(f"{missing} is not set: a parameter server needs its job's master and checkpoint folder")
    # An Event would not do for signals: its lock may be held by the very wait that the signal interrupts.
    facts: queue.SimpleQueue[ShutdownEvent | _Signalled] = queue.SimpleQueue()
    signal.signal(signal.SIGTERM, lambda *_: facts.put(_Signalled()))
    signal.signal(signal.SIGINT, lambda *_: facts.put(SigintReceived()))
    incarnation = Incarnation(uuid.uuid4().hex[:12])
    security = Security.from_environment(variables)
    listening, address = listen(variables, environment.master, incarnation)
    identity = ServerIdentity(
        name=MemberName(environment.name),
        ordinal=environment.ordinal,
        incarnation=incarnation,
        address=address,
    )
    member = ControlStream(identity, facts.put)
    storage = open_storage(environment.checkpoint_uri)
    hold_as_writer(storage)
    context = ServerContext(storage=storage, notify_master=member.send, fatal=_die, security=security)
    service = ParameterServer(name=identity.name, incarnation=incarnation, context=context)
    listener = DataListener(service, security, listening, WireLimits())
    member.serve(service, _master(environment))
    log.info("%s, process %s, listens on %s", identity.name, incarnation, identity.address)
    departure = ShutdownState(grace_s=environment.drain_s)
    parent = variables.get("EDL_PARENT_PID")
    while not departure.has_ended:
        fact = _next(facts, departure.due_s, parent)
        was_leaving = departure.is_leaving
        if fact is not None:
            happened = SigtermReceived() if isinstance(fact, _Signalled) else fact
            departure = after_event(departure, happened, time.monotonic(), would_lose=service.has_copies)
        departure = at_time(departure, time.monotonic())
        if departure.is_leaving and not was_leaving:
            log.info("received SIGTERM: staying up to %.1f s until other servers have the buckets", environment.drain_s)
            member.leave("SIGTERM")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the interpreter would restore the default, which kills
    is_owning = service.has_buckets
    log.info("ends, %s", "with buckets that no other server has" if is_owning else "with no buckets")
    listener.close()
    member.close()
    service.close()
    if departure.refusal:
        sys.stderr.write(
            f"parameter server: the master refuses {identity.name}: {escape_controls(departure.refusal)}\n"
        )
        return EXIT_REFUSED
    return EXIT_OWNING if is_owning and not departure.is_released else 0


def _next(
    facts: queue.SimpleQueue[ShutdownEvent | _Signalled], due_s: float, parent: str | None
) -> ShutdownEvent | _Signalled | None:
    """The next event; None if none comes until `due_s` (monotonic) or within `_CHECK_S`.

    The parent is looked at each time: a master that died with it makes events all the time.
    """
    if parent and parent != str(os.getppid()):
        log.warning("the parent process has ended")
        return ParentDied()
    try:
        return facts.get(timeout=max(0.0, min(due_s - time.monotonic(), _CHECK_S)))
    except queue.Empty:
        return None


def _die(error: BaseException) -> None:
    """Ends the process at once: marks and parameters may be apart, so its buckets must not be used any more."""
    log.critical("the process ends; its buckets will be restored from the last checkpoint", exc_info=error)
    logging.shutdown()
    os._exit(EXIT_BROKEN)


def _master(environment: Environment) -> MasterAddress:
    return MasterAddress(
        target=environment.master,
        hello=Hello(job=environment.job, software="edl parameter server"),
        token=environment.token,
        tls_dir=environment.tls_dir,
    )


if __name__ == "__main__":
    sys.exit(main())
