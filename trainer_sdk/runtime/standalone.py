"""Standalone run, `python script.py`: a master, and a parameter server if there are tables, as child processes.

Programs and protocols are those of a cluster, for debugging.  The master keeps its records in memory, so only the
checkpoints in EDL_CHECKPOINT_URI outlive the script.  The children listen on Unix sockets that only this user can open,
with a secret of their own, so no other user of the machine joins (ADR 0170); with EDL_TLS_DIR on ports of loopback.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import Final

from master.api.checkpoints.fallback import check_start
from master.api.checkpoints.folder_lock import CheckpointFolderInUseError, FolderLock, claim_folder
from master.api.checkpoints.resume import parse_requested_start
from master.api.checkpoints.storage import open_storage
from master.api.errors import ManifestError, StorageError
from master.api.host.log_lines import HEAD_WAITS
from master.api.host.unix_sockets import SCHEME, make_socket_folder, temporary_parent
from master.api.identities import HistoryId
from trainer_sdk.environment import Environment
from trainer_sdk.errors import CheckpointError, ChildEndedError, MasterUnavailableError, UsageError
from trainer_sdk.runtime.script_folders import CHECKPOINTS, PREFIX, hold_folder, remove_folder, remove_left_over

START_S: Final = 60.0  # a second or two, but where the machine is busy; a child that has ended is noticed at once
STOP_S: Final = 5.0
LEFTOVERS_END_S: Final = 5.0  # until the children of a killed script have seen that it is gone
CLAIM_AGAIN_S: Final = 0.1
LOG_TAIL_BYTES: Final = 2_000
WAITING_COMMIT: Final = re.compile(re.escape(HEAD_WAITS).replace("%s", r"\S+", 1).replace("%s", "(.*)"))
TELL_EVERY_S: Final = 1.0
MANIFEST_ID: Final = re.compile(r"\d{6,}-\d{10,}-\d{6,}-\w+")
HOME: Final = Path(__file__).resolve().parents[2]  # the children run this EDL, not another one on their path
NOT_INHERITED: Final = frozenset({"EDL_ADVERTISE", "EDL_METRICS_LISTEN", "EDL_ROLE"})  # of a pod, not of its children


class Standalone:
    """Child processes of one session.  After `stop` none of them runs and the temporary folder is gone.

    A start also removes the folders that killed scripts of this user have left.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        places = (tempfile.gettempdir(), "/tmp", "/var/tmp")  # noqa: S108 - looked at before one is taken
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=temporary_parent(places)))
        self._sockets = make_socket_folder(self._folder / "s")
        self._folders = [self._folder] if self._sockets.parent == self._folder else [self._folder, self._sockets]
        self._holds: list[int] = []  # inherited by the children, so that folders are in use until the last has ended
        for folder in self._folders:
            with suppress(OSError):  # no locks there: the folder stays if this script is killed
                self._holds.append(hold_folder(folder))
        self._history = HistoryId(f"script-{uuid.uuid4().hex}")
        self._claimed: FolderLock | None = None
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._is_over = Event()
        self._commit_watcher = Thread(target=self._watch_commits, name="edl-commits", daemon=True)

    def start(self, *, has_tables: bool = False, is_group: bool = False) -> Environment:
        """Starts the children; the environment with their master's address, and for a group where to listen.

        Raises CheckpointError where the folder cannot be read (M11), MasterUnavailableError, ChildEndedError.
        """
        for folder in self._folders:
            remove_left_over(folder.parent)
        address_file = self._folder / "master.address"
        uri = self._environment.checkpoint_uri or str(self._folder / CHECKPOINTS)
        self._claim(uri)
        self._check_start(uri)
        note = replace(self._environment, checkpoint_uri=uri, token_file=self._environment.token_file or self._token())
        common = {
            "EDL_JOB": note.job,
            "EDL_CHECKPOINT_URI": uri,
            "EDL_ORDINAL": "0",
            "EDL_TOKEN_FILE": note.token_file,
        }
        self._spawn(
            "master",
            {
                **common,
                "EDL_NAME": f"{self._environment.job}-master-0",
                "EDL_LISTEN": "127.0.0.1:0" if note.tls_dir else f"{SCHEME}{self._sockets}/master",
                "EDL_ADDRESS_FILE": str(address_file),
                "EDL_SERVERS": str(int(has_tables)),
                "EDL_GROUP": str(int(is_group)),
                "EDL_ETCD_ENDPOINTS": "",
                "EDL_HISTORY": self._history if note.checkpoint_start or not self._claimed else "",  # else its folder's
                "EDL_CHECKPOINT_START": note.checkpoint_start,
                "EDL_WHEN_UNREADABLE": note.when_unreadable.value,
            },
        )
        address = self._wait_for(address_file)
        listen = "127.0.0.1:0" if note.tls_dir else f"{SCHEME}{self._sockets}"
        if has_tables:
            name = f"{self._environment.job}-server-0"
            # the only server: no other could take its buckets, so it ends at once
            here = {"EDL_MASTER": address, "EDL_LISTEN": listen, "EDL_GRACE_S": "0"}
            self._spawn("trainer_sdk.pserver", {**common, "EDL_NAME": name, **here})
        what = "a master and a parameter server" if has_tables else "a master"
        _print_line(f"edl: no EDL_MASTER, so {what} started here; logs in {self._folder}")
        self._commit_watcher.start()
        return replace(note, master=address, is_group=is_group, listen=listen)

    def _claim(self, uri: str) -> None:
        """Claims the checkpoint folder until the children have ended, so that no other run uses it.

        Waits for the master of a script that was killed just before, which ends by itself.
        """
        holder, until_s = f"a script that runs alone, process {os.getpid()}", monotonic() + LEFTOVERS_END_S
        while True:
            try:
                self._claimed = claim_folder(open_storage(uri), holder, allows_shared=True)
            except CheckpointFolderInUseError as error:
                if monotonic() > until_s:
                    raise UsageError(f"EDL_CHECKPOINT_URI: {error}") from error
                sleep(CLAIM_AGAIN_S)
            except StorageError as error:
                raise CheckpointError(error.name, error.problem) from error
            else:
                return

    def _check_start(self, uri: str) -> None:
        """Checks the checkpoint to start from, so that the script itself reports a problem.

        Raises UsageError or CheckpointError.
        """
        start, when = self._environment.checkpoint_start, self._environment.when_unreadable
        try:
            answer = parse_requested_start(start, self._history) if start else None
            check_start(open_storage(uri), answer, when, now_s=time())
        except ManifestError as error:
            raise UsageError(f"EDL_CHECKPOINT_START: {error}") from error
        except StorageError as error:
            raise CheckpointError(error.name, error.problem) from error

    def check(self) -> None:
        """Raises ChildEndedError, with the end of its log, when a child has ended before its script."""
        for module, child in self._children:
            if (code := child.poll()) is not None:
                tail = self._log(module).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
                raise ChildEndedError(f"python -m {module}, started by this script, ended with {code}:\n{tail}")

    def _watch_commits(self) -> None:
        """Prints why the master's commits fail, each reason once: users do not read its log."""
        read_to, last_reason = 0, ""
        while not self._is_over.wait(TELL_EVERY_S):
            lines = self._read_master_log(read_to)
            read_to += len(lines)
            for problem in WAITING_COMMIT.findall(lines.decode(errors="replace")):
                if (reason := MANIFEST_ID.sub("", problem)) != last_reason:
                    _print_line(f"edl: training continues, but no checkpoint is committed: {problem}")
                    last_reason = reason

    def _read_master_log(self, since: int) -> bytes:
        """Whole lines of the master's log from this offset on."""
        with suppress(OSError), self._log("master").open("rb") as log:  # the log may have been removed
            log.seek(since)
            news = log.read()
            return news[: news.rfind(b"\n") + 1]
        return b""

    def stop(self) -> None:
        if self._commit_watcher.is_alive():  # not in a forked child
            self._is_over.set()
            self._commit_watcher.join(STOP_S)
        for _, child in reversed(self._children):
            child.terminate()
        deadline_s = monotonic() + STOP_S
        for _, child in reversed(self._children):
            try:
                child.wait(max(0.1, deadline_s - monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                with suppress(subprocess.TimeoutExpired):  # a signal handler that raised may have left its lock held
                    child.wait(STOP_S)
        self._children.clear()
        if self._claimed is not None:
            self._claimed.release()
        for folder in self._folders:
            remove_folder(folder)
        for hold in self._holds:
            os.close(hold)
        self._holds.clear()

    def _token(self) -> str:
        """File with a secret that only these processes know."""
        path = self._folder / "token"  # in a folder of mode 0700
        path.write_text(secrets.token_hex(32), encoding="ascii")
        return str(path)

    def _spawn(self, module: str, settings: Mapping[str, str]) -> None:
        role = "server" if module.endswith("pserver") else module
        inherited = {k: v for k, v in os.environ.items() if k not in NOT_INHERITED}
        environment = inherited | {"EDL_ROLE": role, "EDL_PARENT_PID": str(os.getpid())} | dict(settings)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOME), inherited.get("PYTHONPATH"))))
        with self._log(module).open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", module],  # -P: do not import a master.py beside the script
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=self._holds,
                start_new_session=True,  # Ctrl-C is for the script, which then stops its children
            )
        self._children.append((module, child))

    def _wait_for(self, address_file: Path) -> str:
        deadline_s = monotonic() + START_S
        while monotonic() < deadline_s:
            if address_file.exists() and (address := address_file.read_text(encoding="utf-8").strip()):
                return address
            self.check()
            sleep(0.02)
        raise MasterUnavailableError(f"python -m master did not report its address within {START_S:g} s")

    def _log(self, module: str) -> Path:
        return self._folder / f"{module}.log"


def _print_line(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
