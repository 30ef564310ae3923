"""The day's job as a torch group: its definition, and torch in its containers.

torch is 3 GB, which no image of the tests has.  Each node has this machine's Python packages at HOST_PACKAGES, and the
trainers look there for what their image lacks.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any, Final

from tests.e2e.day import FOLDER, job_manifest
from tests.e2e.node_files import HOST_PACKAGES

START: Final = f"""\
import runpy, sys
sys.path[0], sys.argv = "examples", sys.argv[1:]
sys.path.append("{HOST_PACKAGES}")
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A script that finds torch after the image's own packages, which so come first."""


def lacking(image_python: str) -> str:
    """Why containers whose Python is of this version do not use this machine's torch, or nothing."""
    if os.environ.get("EDL_E2E_TORCH") != "1":
        return "LEFT OUT: a group through the tide takes minutes (make e2e-torch)"
    own = "{}.{}".format(*sys.version_info)
    if find_spec("torch") is None:
        return "torch is not installed (make frameworks)"
    return "" if image_python == own else f"torch is installed for Python {own}, and the images have {image_python}"


def group_manifest(*, epochs: int, most: int, master_node: str) -> dict[str, Any]:
    """The day's job without servers; its master stands on `master_node`."""
    job = job_manifest(epochs=epochs, most=most, least=1)
    spec = job["spec"]
    del spec["parameterServer"]
    spec["group"] = {}
    spec["master"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": master_node}
    template = spec["trainer"]["template"]["spec"]
    (trainer,) = template["containers"]
    trainer["command"] = ["python", "-c", START, "examples/digits_torch_ledger.py"]
    trainer["args"] = ["--epochs", str(epochs), "--micro-batch", "16", "--pause", "0.04", "--out", f"{FOLDER}/model"]
    del trainer["resources"]["limits"]  # torch takes seconds of CPU to start; the pause makes a day as long everywhere
    trainer["volumeMounts"].append({"name": "packages", "mountPath": HOST_PACKAGES, "readOnly": True})
    template["volumes"].append({"name": "packages", "hostPath": {"path": HOST_PACKAGES, "type": "Directory"}})
    return job
