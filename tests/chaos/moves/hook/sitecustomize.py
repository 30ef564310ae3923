"""Makes a process stop itself at a named step; Python loads it into every process of a campaign (PYTHONPATH).

The product logs what it receives, sends and makes durable at level DEBUG, with the value itself as the argument.  A
filter on those loggers sees the value before anything follows from it: the thread that logs is the one that acts, and
it holds the lock.  If a file in the folder CHAOS_FAILPOINTS arms the step, the process renames that file and sends
itself SIGSTOP.  Renaming is atomic, so of several processes one is stopped.

`tests.chaos.moves.failpoints` arms the steps.
"""

import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

LOGGERS = (
    "trainer_sdk.pserver.shell",
    "trainer_sdk.pserver.process.parameter_server",
    "trainer_sdk.pserver.transfer.bucket_sender",
    "trainer_sdk.pserver.transfer.push_replication",
    "master.term.store_writer",
)
TAKEN = {
    "WarmCopyRequested": "AHEAD",
    "Freeze": "FREEZE",
    "Activate": "ACTIVATE",
    "Forget": "FORGET",
    "Hold": "HOLD",
    "Cut": "CUT",
    "FileWritten": "WRITTEN",
    "BackupPush": "PASS",
    "Push": "PASSED",
}
PIECE_BYTES = int(os.environ.get("CHAOS_PIECE_BYTES", "0"))  # set before the first push: a model is logged earlier
AHEAD = set()  # buckets of this process whose rows have set out, and that are not frozen yet


def steps_of(value):
    """The steps that this value is; most values are none."""
    kind = type(value).__name__
    watch(kind, value)
    if kind in TAKEN:
        return [TAKEN[kind]]
    match kind:
        case "CopyArrived":
            return ["INSTALLED" if value.head.is_final else "WARM"]
        case "SendCopy":
            return ["HANDOVER" if value.is_final else "SENT"]
        case "Persisted" if type(value.write).__name__ == "ChangeTable":
            return changes_of(value.write.old, value.write.new)
        case "tuple":  # of a push: what it did
            return ["CHANGED"] if any(bucket in effect.buckets for effect in applied(value) for bucket in AHEAD) else []
    return []


def watch(kind, value):
    """Whose rows are ahead of them."""
    match kind:
        case "WarmCopyRequested":
            AHEAD.add(value.bucket)
        case "Freeze":
            AHEAD.discard(value.bucket)
        case "Activate" | "Forget":
            AHEAD.difference_update([bucket for bucket in AHEAD if bucket in value.buckets])
        case "Restore":
            AHEAD.clear()


def applied(effects):
    """Those by which parameters change."""
    return [effect for effect in effects if type(effect).__name__ in {"ApplyLive", "ApplyBoth"}]


def changes_of(old, new):
    """Which intents have begun, and how the versions ended that are over."""
    begun = {
        "RECRUIT" if is_for_backup(new, intent) else "INTENT" for intent in new.intents if intent not in old.intents
    }
    versions = enumerate(zip(old.route.version, new.route.version, strict=True))
    return sorted(begun | {end_of(old, new, bucket) for bucket, (was, now) in versions if was != now})


def is_for_backup(table, intent):
    return table.backups is not None and intent.bucket in table.backups.wanted


def end_of(old, new, bucket):
    (owner, backup), (new_owner, new_backup) = copies_of(old, bucket), copies_of(new, bucket)
    if owner != new_owner:
        return "PROMOTE" if new_owner == backup else "FLIP"
    if backup == new_backup:
        return "UNDO"
    return "BACKED" if new_backup else "ALONE"


def copies_of(table, bucket):
    """The processes that have it: the owner, and the backup or none."""
    servers = table.route.servers
    backup = table.backups.backup[bucket] if table.backups else -1
    return servers[table.route.owner[bucket]].incarnation, servers[backup].incarnation if backup >= 0 else None


class Stops(logging.Filter):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def filter(self, record):
        if PIECE_BYTES and (service := sys.modules.get("trainer_sdk.pserver.process.parameter_server")):
            service.PIECE_BYTES = PIECE_BYTES
        if record.levelno > logging.DEBUG:
            return True
        for step in steps_of(record.args[0]) if isinstance(record.args, tuple) and record.args else ():
            with suppress(FileNotFoundError):
                (self.folder / f"{step}.armed").rename(self.folder / f"{step}.{os.getpid()}.met")
                os.kill(os.getpid(), signal.SIGSTOP)
        return False  # nobody is to read these lines


if folder := os.environ.get("CHAOS_FAILPOINTS"):
    stops = Stops(Path(folder))
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.DEBUG)
        logger.addFilter(stops)
