"""Programs of the test cluster: each program, the Go module that pins it, and how its version is stamped.

One Go module a family: a single one would lift the API server's dependencies to the newest that any family asks for.
etcd is not here: EDL starts one for its own jobs too, see `autoscaler.etcd_server`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.harness.errors import HarnessError

MODULES: Final = Path(__file__).with_name("modules")
KEY_LENGTH: Final = 12

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Programs that one Go module pins.

    `stamps` are the linker's variables that tell a program its version, where `{version}` (v1.2.3), `{major}` and
    `{minor}` stand for the pinned one.  `files` are taken from `pinned_by` as they are: name here -> path there.
    `tags` leave parts out.  `module` is the folder of the Go module where that is not called like the family.
    """

    name: str
    pinned_by: str
    programs: Mapping[str, str]  # -> Go package
    module: str = ""
    stamps: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return MODULES / (self.module or self.name)

    def version(self) -> Version:
        """The pinned one, out of go.mod."""
        found = re.search(
            rf"^\s*{re.escape(self.pinned_by)} (v\S+)", (self.folder / "go.mod").read_text(), re.MULTILINE
        )
        version = try_parse_version(found[1]) if found else None
        if version is None:
            raise HarnessError(f"{self.folder / 'go.mod'} does not require {self.pinned_by}")
        return version

    def key(self) -> str:
        """Changes with whatever changes what is built."""
        digest = hashlib.sha256()
        for file in (self.folder / "go.mod", self.folder / "go.sum", *sorted(self.folder.glob("*.go"))):
            digest.update(file.read_bytes())
        digest.update(repr((self.programs, self.stamps, self.files, *self.tags)).encode())
        return digest.hexdigest()[:KEY_LENGTH]

    def linker_flags(self) -> str:
        major, minor, patch = self.version()
        words = {"version": f"v{major}.{minor}.{patch}", "major": major, "minor": minor}
        return " ".join(["-s", "-w", *(f"-X {stamp.format(**words)}" for stamp in self.stamps)])

    def serves(self, version: Version | None) -> bool:
        """A program found on this machine may stand in: the same minor release, and no older patch."""
        wanted = self.version()
        return version is not None and version[:2] == wanted[:2] and version >= wanted


KUBERNETES: Final = Family(
    name="kubernetes",
    pinned_by="k8s.io/kubernetes",
    programs={
        program: f"k8s.io/kubernetes/cmd/{program}"
        for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
    stamps=(
        "k8s.io/component-base/version.gitVersion={version}",
        "k8s.io/component-base/version.gitMajor={major}",
        "k8s.io/component-base/version.gitMinor={minor}",
    ),
)
KWOK: Final = Family(
    name="kwok",
    pinned_by="sigs.k8s.io/kwok",
    programs={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    files={
        "node-initialize.yaml": "kustomize/stage/node/fast/node-initialize.yaml",
        "node-heartbeat.yaml": "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    },
)
HELM: Final = Family(
    name="helm",
    pinned_by="helm.sh/helm/v4",
    programs={"helm": "helm.sh/helm/v4/cmd/helm"},
    stamps=("helm.sh/helm/v4/internal/version.version={version}",),
)
PROMETHEUS: Final = Family(
    name="prometheus",
    pinned_by="github.com/prometheus/prometheus",
    programs={program: f"github.com/prometheus/prometheus/cmd/{program}" for program in ("prometheus", "promtool")},
    tags=("remove_all_sd",),  # targets come from files and over HTTP: without the clients of every cloud
)
NODE: Final = Family(
    name="node",
    module=KUBERNETES.name,
    pinned_by=KUBERNETES.pinned_by,
    programs={program: f"k8s.io/kubernetes/cmd/{program}" for program in ("kubelet", "kube-proxy")},
    stamps=KUBERNETES.stamps,
)
DNS: Final = Family(name="dns", pinned_by="github.com/coredns/coredns", programs={"coredns": "edl.dev/cluster/coredns"})
ETCDCTL: Final = Family(  # by the module of the chart's etcd image
    name="etcdctl",
    module="../../../images/etcd",
    pinned_by="go.etcd.io/etcd/etcdctl/v3",
    programs={"etcdctl": "go.etcd.io/etcd/etcdctl/v3"},
)
FAMILIES: Final = (KUBERNETES, KWOK, HELM)
ALERT_FAMILIES: Final = (PROMETHEUS,)
"""What the tests of alerts and dashboards need: no control plane does."""

NODE_FAMILIES: Final = (NODE, DNS, ETCDCTL)
"""What real nodes need besides: `make e2e`."""

VERSION_QUESTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubectl": ("version", "--client"),
    "helm": ("version", "--short"),
    "coredns": ("-version",),
}
"""The arguments that make a program tell its version, where `--version` does not."""


def try_parse_version(text: str) -> Version | None:
    """The first `v1.2.3` in a program's version output."""
    found = re.search(r"\bv(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
