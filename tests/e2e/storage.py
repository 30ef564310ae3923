"""Volumes that both nodes reach: where checkpoints and the members of etcd have their files.

Both nodes are on this machine and have one folder of it bound in, so what stands for a shared file system is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.node_files import SHARED

CAPACITY: Final = "10Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedVolume:
    """Waits for one claim.  `folder` is where this machine finds what pods write there."""

    folder: Path
    namespace: str
    claim: str
    mode: str

    @property
    def name(self) -> str:
        return self.folder.name

    def manifest(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.name},
            "spec": {
                "capacity": {"storage": CAPACITY},
                "accessModes": [self.mode],
                "claimRef": {"namespace": self.namespace, "name": self.claim},
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": f"{SHARED}/{self.folder.name}", "type": "Directory"},
            },
        }


def make_volume(shared: Path, namespace: str, claim: str, *, mode: str = "ReadWriteMany") -> SharedVolume:
    """With an empty folder."""
    folder = shared / f"{namespace}-{claim}"
    folder.mkdir()
    folder.chmod(0o777)  # containers write there as whoever they are
    return SharedVolume(folder=folder, namespace=namespace, claim=claim, mode=mode)
