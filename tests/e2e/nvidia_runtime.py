"""NVIDIA's container runtime on a real node, without NVIDIA's driver: the driver of `tests/harness/fake_nvml`.

Like the real one it stands in front of runc, and puts the driver's library into each container whose environment has
NVIDIA_VISIBLE_DEVICES.  Pods ask for it by the RuntimeClass `nvidia`.  The library answers what the file SCENARIO of
the node says.
"""

from __future__ import annotations

import os
from typing import Final

from tests.harness.fake_nvml import SONAME, VARIABLE

NAME: Final = "nvidia"  # of the runtime, and of its RuntimeClass
PROGRAM: Final = "nvidia-container-runtime"
FOLDER: Final = "gpus"  # below the node's own folder of files
SCENARIO: Final = "scenario"
INSIDE: Final = "/run/gpus"  # where a container has the folder
LIBRARIES: Final = f"/usr/lib/{os.uname().machine}-linux-gnu"  # where the loader of Debian's images looks

RUNTIME_CLASS: Final = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": NAME},
    "handler": NAME,
}


def containerd_section(files: str) -> str:
    """The part of containerd's configuration.  `files`: the node's own folder of files."""
    table = f'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{NAME}'
    return f"""\
  [{table}]
    runtime_type = "io.containerd.runc.v2"
    [{table}.options]
      BinaryName = "{files}/{PROGRAM}"
"""


def program(files: str) -> str:
    """The runtime: `create` is changed, every other command of runc is handed on."""
    mounts = f"{_mount(f'{files}/{FOLDER}', INSIDE)},{_mount(f'{files}/{FOLDER}/{SONAME}', f'{LIBRARIES}/{SONAME}')}"
    return f"""\
#!/bin/sh
set -eu
bundle= previous=
for word; do
  if [ "$previous" = --bundle ]; then bundle=$word; fi
  previous=$word
done
if [ -n "$bundle" ] && grep -q '"NVIDIA_VISIBLE_DEVICES=' "$bundle/config.json"; then
  sed -i -e 's#"mounts":\\[#&{mounts},#' -e 's#"env":\\[#&"{VARIABLE}={INSIDE}/{SCENARIO}",#' "$bundle/config.json"
fi
exec runc "$@"
"""


def _mount(source: str, destination: str) -> str:
    options = '"options":["rbind","ro"]'
    return f'{{"destination":"{destination}","type":"bind","source":"{source}",{options}}}'
