"""A virtual environment with torchft, which the project itself does not install: made once, in the user's cache.

It has torchft and what that imports; torch is the one of this environment, so nothing large is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import torch

from autoscaler.etcd_server.cache import cache_folder

VERSION: Final = "0.2.0"
_OTHERS: Final = (  # torchft logs by these
    "opentelemetry-api==1.45.2",
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.2",
)
_LIMIT_S: Final = 300.0


class TorchftError(Exception):
    """torchft cannot be installed or imported here; the message is the last line of what was said."""


def torchft_python() -> str:
    """The interpreter that imports torchft and this environment's torch.  Raises TorchftError."""
    name = f"torchft-{VERSION}-torch-{torch.__version__}-python-{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_folder(os.environ) / name
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", f"torchft=={VERSION}"])
        _run([*pip, *_OTHERS])
        (folder / "complete").touch()
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "beside.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    _run([str(python), "-c", "import torchft"])
    return str(python)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise TorchftError(f"not done within {_LIMIT_S:g} s: {error.cmd[-1]}") from error
    if done.returncode:
        raise TorchftError((done.stderr.strip().splitlines() or ["no message"])[-1])
