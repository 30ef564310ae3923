"""Kubeconfigs: of the cluster's own parts, by certificate; of ServiceAccounts, by a token from the API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config

from tests.harness.certificates import Pair

NAME: Final = "test-cluster"
TOKEN_LIFETIME_S: Final = 3600


def write_certificate_kubeconfig(path: Path, *, server: str, authority: Path, pair: Pair) -> Path:
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    return _write(path, server, authority, user, namespace="default")


def write_account_kubeconfig(
    path: Path,
    api: client.ApiClient,
    *,
    authority: Path,
    namespace: str,
    account: str,
    lifetime_s: int = TOKEN_LIFETIME_S,
) -> Path:
    """Write a kubeconfig with the rights of `account`, valid for `lifetime_s` (at least 600).

    `api` must be allowed to ask for tokens.  Raises kubernetes' NotFoundException when there is no such account.
    """
    request = {"spec": {"expirationSeconds": lifetime_s}}
    core: Any = client.CoreV1Api(api)
    answer = core.create_namespaced_service_account_token(account, namespace, request)
    return _write(path, api.configuration.host, authority, {"token": answer.status.token}, namespace=namespace)


def open_client(kubeconfig: Path) -> client.ApiClient:
    """To be closed by the caller; also a context."""
    opened: client.ApiClient = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    return opened


def _write(path: Path, server: str, authority: Path, user: Mapping[str, str], *, namespace: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": NAME, "user": dict(user)}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}],
        "current-context": NAME,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))
    return path
