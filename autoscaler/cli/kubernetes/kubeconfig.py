"""The cluster and the namespace to use: the kubeconfig's current context, unless options name another.

Only names are read here; the client library reads the credentials (`api.connection`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.clusters.kubernetes.objects.fields import parts
from autoscaler.clusters.kubernetes.objects.fields import text as text_of

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """Contexts of a kubeconfig, each with its namespace.

    `path` may be several files separated by colons, as the client library accepts.
    """

    path: Path
    current: str = ""
    contexts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """A cluster and a namespace in it.  `kubeconfig` None: the service account of this pod."""

    kubeconfig: Path | None
    context: str | None
    namespace: str
    title: str


def find_cluster(kubeconfig: str | None, context: str | None, namespace: str | None) -> ClusterTarget:
    """The cluster that the options select.  Raises CommandError."""
    if kubeconfig is None and context is None and not _has_kubeconfig() and (_ACCOUNT / "token").is_file():
        own = (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        return ClusterTarget(kubeconfig=None, context=None, namespace=namespace or own, title="this pod's cluster")
    known = read_kubeconfig(kubeconfig)
    name = context or known.current
    if not known.contexts:
        hint = "name another file by --kubeconfig or $KUBECONFIG"
        raise CommandError(Exit.NOT_FOUND, f"{known.path} has no contexts, so it names no cluster; {hint}")
    if not name:
        raise CommandError(Exit.USAGE, f"{known.path} has no current context; name one of {_named(known)} by --context")
    if name not in known.contexts:
        raise CommandError(Exit.NOT_FOUND, f"{known.path} has no context {name}; it has {_named(known)}")
    return ClusterTarget(
        kubeconfig=known.path, context=name, namespace=namespace or known.contexts[name], title=f"context {name}"
    )


def read_kubeconfig(named: str | None) -> Kubeconfig:
    """The contexts of --kubeconfig, else $KUBECONFIG, else ~/.kube/config; the first file with a value wins."""
    text = named or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    documents = [_load(path) for path in map(Path, filter(None, text.split(os.pathsep))) if path.is_file()]
    if not documents:
        hint = "name a file by --kubeconfig or $KUBECONFIG, or a run on this machine by --run DIR"
        raise CommandError(Exit.NOT_FOUND, f"{text} is not a kubeconfig; {hint}")
    contexts: dict[str, str] = {}
    for document in documents:
        for one in parts(document, "contexts"):
            contexts.setdefault(str(one.get("name")), text_of(one, "context", "namespace") or "default")
    current = next((str(found) for document in documents if (found := document.get("current-context"))), "")
    return Kubeconfig(path=Path(text), current=current, contexts=contexts)


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or (Path.home() / ".kube" / "config").is_file()


def _load(path: Path) -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415 - only here

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(Exit.REFUSED, f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:  # its text quotes the line, which may hold a token
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise CommandError(Exit.REFUSED, f"{path} cannot be read: it is not YAML{where}") from None
    except (ValueError, RecursionError):  # such as a month 13, or brackets in brackets without end
        raise CommandError(Exit.REFUSED, f"{path} cannot be read: it is not YAML of a kubeconfig") from None
    return content if isinstance(content, Mapping) else {}


def _named(known: Kubeconfig) -> str:
    return ", ".join(known.contexts)
