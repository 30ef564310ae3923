"""The agent's calls of the API server: its own NodeGpus object, and nothing else.

Written on the standard library, since EDL's client of the API takes 30 MB, half of what an agent may have (ADR 0283).
The node's name and UID stand in the token that the kubelet mounts, which is bound to the agent's pod; so the agent
needs no right to read its Node, and the admission policy compares the same name.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import http.client
import json
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.domain.cluster import NodeName
from autoscaler.errors import PermanentError, TemporaryError, error_text
from autoscaler.gpus.report_documents import API_VERSION, PLURAL

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEADLINE_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20  # a NodeGpus of 128 GPUs with 64 pods each has 2.7 MB, one of 16 with a pod 6 KB
_MOST_TOKEN: Final = 64 << 10
_NODE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # it becomes a part of an address


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentIdentity:
    """The node of the token's pod; `uid` is empty where the token has none."""

    node: NodeName
    uid: str


class NodeGpusApi:
    """One node's object.  A call ends within seconds, one at a time; it raises TemporaryError and nothing else."""

    def __init__(self, server: str, *, account: Path = SERVICE_ACCOUNT, deadline_s: float = DEADLINE_S) -> None:
        """`server`: HOST:PORT.  Raises PermanentError if it is none, or without a certificate of its authority."""
        try:
            http.client.HTTPSConnection(server)
        except http.client.InvalidURL:
            raise PermanentError(f"the API server {server}: it is no HOST:PORT, as in 10.0.0.1:443") from None
        self._server = server
        self._account = account
        self._deadline_s = deadline_s
        try:
            self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
        except (OSError, ssl.SSLError) as error:
            raise PermanentError(f"the API server's certificate in {account}: {error_text(error)}") from None

    def identity(self, fallback_node: str = "") -> AgentIdentity:
        """The token's node, else `fallback_node`.  Raises PermanentError where neither names one."""
        claims = read_claims(self._token()).get("kubernetes.io")
        node = claims.get("node") if isinstance(claims, dict) else None
        name, uid = (node.get("name"), node.get("uid")) if isinstance(node, dict) else (None, None)
        if not isinstance(name, str) or not name:
            name, uid = fallback_node, ""
        if not name:
            raise PermanentError(
                "the service account's token names no node: set --node, or use Kubernetes 1.32 or newer"
            )
        if not _NODE.fullmatch(name):
            raise PermanentError(f"{name[:64]!r} is no name of a node: see kubectl get nodes, and set --node")
        return AgentIdentity(node=NodeName(name), uid=uid if isinstance(uid, str) else "")

    async def get(self, node: NodeName) -> dict[str, Any] | None:
        """The object, perhaps some seconds old, as the server's cache has it; None without one."""
        path = f"{_path()}/{node}?resourceVersion=0"
        return await asyncio.to_thread(self._call, "GET", path, None, missing_is_none=True)

    async def create(self, body: dict[str, Any]) -> None:
        """Create the object.  One that is there already stays as it is."""
        await asyncio.to_thread(self._call, "POST", _path(), body, conflict_is_none=True)

    async def write_status(self, node: NodeName, status: dict[str, Any]) -> bool:
        """Replace the status; False if there is no object."""
        path, body = f"{_path()}/{node}/status", {"status": status}
        return await asyncio.to_thread(self._call, "PATCH", path, body, missing_is_none=True) is not None

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        *,
        missing_is_none: bool = False,
        conflict_is_none: bool = False,
    ) -> dict[str, Any] | None:
        """The decoded answer.  Raises TemporaryError: also a right that is missing may be given while this runs."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": kind, "Accept": "application/json"}
        connection = http.client.HTTPSConnection(self._server, timeout=self._deadline_s, context=self._tls)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            message = f"{method} {PLURAL}: the API server at {self._server}: {error_text(error)}"
            raise TemporaryError(message, retry_after_s=0.0) from None
        finally:
            connection.close()
        if (answer.status == 404 and missing_is_none) or (answer.status == 409 and conflict_is_none):
            return None
        if answer.status >= 300:
            problem = f"{method} {PLURAL}: {answer.status} {_message(text)}"
            after = answer.headers.get("Retry-After", "")
            raise TemporaryError(problem, retry_after_s=float(after) if after.isdecimal() else 0.0)
        try:
            decoded = json.loads(text) if len(text) <= _MOST_BYTES else None
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            raise TemporaryError(f"{method} {PLURAL}: the answer is no object", retry_after_s=0.0)
        return decoded

    def _token(self) -> str:
        """Read anew for each call, since the kubelet renews it."""
        try:
            with (self._account / "token").open() as file:
                return file.read(_MOST_TOKEN).strip()
        except (OSError, ValueError) as error:
            raise TemporaryError(f"the service account's token: {error_text(error)}", retry_after_s=0.0) from None


def read_claims(token: str) -> dict[str, Any]:
    """Claims of a JSON web token, unverified: the server verifies them.  Empty where it is none."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def server_of_environment() -> str:
    """HOST:PORT of the API server, as the kubelet tells it to each container.  Raises PermanentError outside a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise PermanentError("KUBERNETES_SERVICE_HOST is not set: --report works in a pod, or with --api-server")
    return host_port(host, port)


def host_port(host: str, port: int | str) -> str:
    """HOST:PORT, with an address of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _path() -> str:
    return f"/apis/{API_VERSION}/{PLURAL}"


def _message(text: bytes) -> str:
    """The message of a Status object, in one line."""
    try:
        decoded = json.loads(text)
    except ValueError:
        decoded = None
    message = decoded.get("message") if isinstance(decoded, dict) else None
    return " ".join(str(message or text[:200].decode(errors="replace")).split())[:300]
