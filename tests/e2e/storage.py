"""A volume that both nodes reach, as a claim in a namespace: where data and checkpoints lie.

Both nodes are on this machine and have one folder of it bound in, so what stands for a shared file system is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.node_files import SHARED

CLAIM: Final = "checkpoints"
CAPACITY: Final = "1Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedVolume:
    """`folder` is where this machine finds what pods of the namespace write to the claim CLAIM."""

    folder: Path
    namespace: str

    @property
    def name(self) -> str:
        return f"{CLAIM}-{self.namespace}"

    def manifests(self) -> list[dict[str, Any]]:
        size = {"storage": CAPACITY}
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        bound = {"claimRef": {"namespace": self.namespace, "name": CLAIM}, "persistentVolumeReclaimPolicy": "Retain"}
        source = {"hostPath": {"path": f"{SHARED}/{self.folder.name}", "type": "Directory"}}
        return [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": self.name},
                "spec": {"capacity": size, **common, **bound, **source},
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": CLAIM, "namespace": self.namespace},
                "spec": {"resources": {"requests": size}, "volumeName": self.name, **common},
            },
        ]


def make_folder(shared: Path, namespace: str) -> SharedVolume:
    folder = shared / namespace
    folder.mkdir()
    folder.chmod(0o777)  # containers write there as whoever they are
    return SharedVolume(folder=folder, namespace=namespace)
