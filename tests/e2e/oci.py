"""An OCI image layout in one archive, which `ctr images import` takes: several images that share their layers.

Pure but for the reading of layers and the writing of the archive; the same images give the same bytes.
Source: the OCI image format specification, image-layout.md and manifest.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MEDIA: Final = "application/vnd.oci.image"
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """An uncompressed tar file: both ends are on one machine."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Layers from the lowest up, and how its containers start unless their pods say otherwise."""

    name: str  # with registry and tag, as containerd knows it
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    folder: str = "/"
    environ: Mapping[str, str] = field(default_factory=dict)


def write_archive(images: Sequence[Image], target: Path, *, machine: str) -> None:
    """`machine`: output of `uname -m` where the images run."""
    architecture = ARCHITECTURES[machine]
    blobs: dict[str, bytes] = {}
    manifests = [_manifest(image, architecture, blobs) for image in images]
    layers = {layer.sha256: layer.path for image in images for layer in image.layers}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for digest, data in sorted(blobs.items()):
            _add(archive, f"blobs/sha256/{digest}", data)
        for digest, path in sorted(layers.items()):
            member = tarfile.TarInfo(f"blobs/sha256/{digest}")
            member.size = path.stat().st_size
            with path.open("rb") as source:
                archive.addfile(member, source)


def _manifest(image: Image, architecture: str, blobs: dict[str, bytes]) -> dict[str, Any]:
    """Puts the image's configuration and manifest among the blobs; how the index leads to it."""
    platform = {"architecture": architecture, "os": "linux"}
    settings = {
        "Entrypoint": list(image.entrypoint) or None,
        "Cmd": list(image.command) or None,
        "User": image.user,
        "WorkingDir": image.folder,
        "Env": [f"{name}={value}" for name, value in {"PATH": SEARCH_PATH, **image.environ}.items()],
    }
    diffs = [f"sha256:{layer.sha256}" for layer in image.layers]
    config = _json({**platform, "config": settings, "rootfs": {"type": "layers", "diff_ids": diffs}})
    layers = [_reference(f"{MEDIA}.layer.v1.tar", layer.sha256, layer.path.stat().st_size) for layer in image.layers]
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": _put(blobs, f"{MEDIA}.config.v1+json", config),
        "layers": layers,
    }
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name.rpartition(":")[2]}
    return {**_put(blobs, f"{MEDIA}.manifest.v1+json", _json(manifest)), "annotations": names, "platform": platform}


def _put(blobs: dict[str, bytes], media: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return _reference(media, digest, len(data))


def _reference(media: str, digest: str, size_bytes: int) -> dict[str, Any]:
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": size_bytes}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    member = tarfile.TarInfo(path)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
