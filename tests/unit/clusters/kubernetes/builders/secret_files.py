"""The files of a job's secrets, as a kubelet lays them out."""

import base64
from datetime import UTC, datetime

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def write_files(folder, secret):
    folder.mkdir(exist_ok=True)
    for name, content in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(content))
    return folder
