"""Reviews: the questions to an API server whose token this is, and what that user may list.  Pure.

An answer counts as a yes only if it says so in full.  `viewer_access` asks, and keeps answers for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from autoscaler.clusters.kubernetes.api.api_port import Raw
from autoscaler.clusters.kubernetes.api.kinds import Kind
from autoscaler.clusters.kubernetes.objects.fields import part, text

MOST_TOKEN_BYTES: Final = 16 * 1024
"""A longer header is no token: those of identity providers with hundreds of groups have 8 KiB."""

_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
"""Names one token, in `extra` of newer API servers: with it, each token of an account would be a user of its own."""

_TOKEN_SIGNS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=")  # RFC 6750

Extra: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUser:
    """A user as the API server knows them, with all that its rights may depend on, whichever token they sent."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRight:
    """A right to a kind, to list it by default: in one namespace, or (empty) in all, or of the whole cluster.

    `name`: of the one object that it is about; empty: all of them.
    """

    kind: Kind
    namespace: str = ""
    verb: str = "list"
    subresource: str = ""
    name: str = ""


def bearer_token(header: str) -> str:
    """Return the token of an Authorization header; empty where it holds none that could be one."""
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    is_token = scheme.lower() == "bearer" and len(token) <= MOST_TOKEN_BYTES and _TOKEN_SIGNS.issuperset(token)
    return token if is_token else ""


def token_review(token: str, audiences: Iterable[str]) -> Raw:
    """Return the question whose token this is; without `audiences` it has to be one for the API server itself."""
    wanted = list(audiences)
    return {"spec": {"token": token} | ({"audiences": wanted} if wanted else {})}


def parse_token_review(answer: Raw, audiences: Iterable[str]) -> TokenUser | None:
    """Return the token's user, or None for a token that is not valid, or not for any of these audiences."""
    status = part(answer, "status")
    name, wanted = text(status, "user", "username"), set(audiences)
    if status.get("authenticated") is not True or not name:
        return None
    if wanted and not wanted.intersection(_texts(status.get("audiences"))):
        return None  # a server that knows no audiences leaves the check to its client
    user = part(status, "user")
    extra = sorted((str(key), _texts(value)) for key, value in part(user, "extra").items() if key != _CREDENTIAL_ID)
    return TokenUser(name=name, uid=text(user, "uid"), groups=_texts(user.get("groups")), extra=tuple(extra))


def access_review(viewer: TokenUser, right: ReadRight) -> Raw:
    """Return the question whether the viewer has the right."""
    spec = {
        "resourceAttributes": _attributes(right),
        "user": viewer.name,
        "uid": viewer.uid,
        "groups": list(viewer.groups),
        "extra": {key: list(values) for key, values in viewer.extra},
    }
    return {"spec": {key: value for key, value in spec.items() if value}}


def own_access_review(right: ReadRight) -> Raw:
    """Return the question whether whoever asks it has the right."""
    return {"spec": {"resourceAttributes": _attributes(right)}}


def parse_access_review(answer: Raw) -> bool:
    """True if the right was given.  What could not be evaluated in part is a refusal unless a rule allows it."""
    status = part(answer, "status")
    return status.get("allowed") is True and not status.get("denied")


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _attributes(right: ReadRight) -> Raw:
    kind = right.kind
    asked = {"verb": right.verb, "group": kind.group, "version": kind.version, "resource": kind.plural}
    asked |= {"namespace": right.namespace} if right.namespace else {}
    asked |= {"name": right.name} if right.name else {}
    return asked | ({"subresource": right.subresource} if right.subresource else {})
