"""An unprivileged neighbour of a run: `stranger.py < attack.json` becomes user `nobody`, attacks, and says what it got.

It takes lists of what to try (`main` names them) and answers with what succeeded, in the same form; an empty answer
means that it learnt nothing and changed nothing.
"""

import encodings.idna  # noqa: F401  nobody may read the interpreter's files, which urllib would look for it in
import fcntl
import http.client
import json
import os
import pwd
import socket
import ssl
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

KEY_AND_VALUE = {"key": "L2VkbC9mb3JnZWQ=", "value": "Zm9yZ2Vk"}


def become_nobody():
    """For good: no groups, no way back."""
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
    os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
    if os.geteuid() == 0:
        raise SystemExit("still root")


def reaches_socket(path):
    with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
        sock.connect(path)
        return True
    return False


def rewrites_through(port):
    """A write to etcd as a web page of any origin sends it, without asking first."""
    headers = {"Content-Type": "text/plain", "Origin": "http://evil.example", "Host": "evil.example"}
    body = json.dumps(KEY_AND_VALUE).encode()
    return any(writes_to(f"{scheme}://127.0.0.1:{port}/v3/kv/put", body, headers) for scheme in ("http", "https"))


def writes_to(url, body, headers):
    request = urllib.request.Request(url, data=body, headers=headers)
    credulous = ssl._create_unverified_context()
    with (
        suppress(OSError, http.client.HTTPException),
        urllib.request.urlopen(request, timeout=3, context=credulous) as answer,
    ):
        return "revision" in answer.read().decode(errors="replace")
    return False


def locks(path):
    """Holds a lock for reading, which keeps out whoever would have it alone."""
    with suppress(OSError), Path(path).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def reads(path):
    with suppress(OSError):
        return bool(Path(path).read_bytes())
    return False


def lists(path):
    with suppress(OSError):
        next(Path(path).iterdir(), None)
        return True
    return False


def writes(path):
    """Opens a file for writing; it stays as it is."""
    with suppress(OSError), Path(path).open("ab"):
        return True
    return False


def makes(path):
    """Makes something in a folder, so that it could as well take away what is there."""
    with suppress(OSError):
        (Path(path) / "stranger").mkdir()
        return True
    return False


def squats(path):
    """Listens in the place of a process of the run."""
    with socket.socket(socket.AF_UNIX) as sock, suppress(OSError):
        sock.bind(path)
        return True
    return False


def main():
    asked = json.load(sys.stdin)
    become_nobody()
    tries = {
        "sockets": reaches_socket, "ports": rewrites_through, "files": reads, "folders": lists, "squat": squats,
        "locks": locks, "writes": writes, "makes": makes,
    }  # fmt: skip
    got = {kind: [one for one in asked.get(kind, ()) if attempt(one)] for kind, attempt in tries.items()}
    json.dump({kind: found for kind, found in got.items() if found}, sys.stdout)


if __name__ == "__main__":
    main()
