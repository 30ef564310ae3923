"""`Api` over HTTP: the verbs as paths, queries and bodies.

Deadlines, credentials, retries and errors of a request are in `connection`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from autoscaler.clusters.kubernetes.api.api_port import (
    ANY,
    EVERYWHERE,
    FIELD_MANAGER,
    EventType,
    Listing,
    Preconditions,
    Propagation,
    Raw,
    Scope,
    Subresource,
    Trimmer,
    WatchEvent,
    trim_or_keep,
    with_preconditions,
)
from autoscaler.clusters.kubernetes.api.connection import (
    APPLY_PATCH,
    MERGE_PATCH,
    ApiConnection,
    ApiRequest,
    ConnectionPolicy,
    ReportSkew,
    ignore_skew,
    open_connection,
    open_connection_as,
)
from autoscaler.clusters.kubernetes.api.errors import TooLongError
from autoscaler.clusters.kubernetes.api.kinds import EVICTIONS, PODS, SECRETS, Kind
from autoscaler.clusters.kubernetes.api.responses import parse_list_page, parse_object, parse_watch_line, with_type

_PAGE_SIZE: Final = 500  # objects: about 2 MB of pods, decoded in 20 ms
_PAGE_BYTES: Final = 8 << 20
"""An object may have 1.5 MB, and anybody may create 500: one page of those filled an operator's memory (A11)."""

_OBJECT_BYTES: Final = 32 << 20
"""Byte limit of a page with one object: 1.5 MB in etcd may be 9 MB of JSON (`<` is \\u003c)."""

_PAGE_SHRINK_FACTOR: Final = 8  # the next page has this many times fewer objects after one that was too long


async def connect(
    kubeconfig: Path | None = None,
    *,
    context: str | None = None,
    field_manager: str = FIELD_MANAGER,
    policy: ConnectionPolicy | None = None,
    trimmers: Mapping[Kind, Trimmer] | None = None,
    report_skew: ReportSkew = ignore_skew,
) -> HttpApi:
    """Return a client by `kubeconfig`, or by the service account of the pod that this process runs in.

    Nothing is sent yet.  Objects of lists and watches pass through the `trimmers` of their kind page by page, so that a
    list is never in memory untrimmed.  `report_skew` is called with the seconds by which the server's clock is ahead.
    Raises PermanentError without usable credentials.
    """
    connection = await open_connection(kubeconfig, context, policy or ConnectionPolicy(), report_skew=report_skew)
    return HttpApi(connection, field_manager, trimmers or {})


async def connect_as(token: str, kubeconfig: Path | None = None, *, policy: ConnectionPolicy | None = None) -> HttpApi:
    """Return a client of the same API server under this bearer token, whatever other credentials there are.

    Nothing is sent yet.  Raises PermanentError if the server cannot be found.
    """
    return HttpApi(await open_connection_as(token, kubeconfig, policy or ConnectionPolicy()), FIELD_MANAGER, {})


class HttpApi:
    """`Api` on HTTP."""

    def __init__(self, connection: ApiConnection, field_manager: str, trimmers: Mapping[Kind, Trimmer]) -> None:
        self._connection = connection
        self._manager = field_manager
        self._trimmers = trimmers

    async def list(self, kind: Kind, scope: Scope = EVERYWHERE) -> Listing:
        """See `Api.list`."""
        items: list[Raw] = []
        trim = self._trimmers.get(kind, _untrimmed)
        size, continue_token = _PAGE_SIZE, ""
        timeout_s = self._connection.policy.page_timeout_s
        while True:
            query = _selectors(scope) | {"limit": str(size)} | ({"continue": continue_token} if continue_token else {})
            request = ApiRequest(description=f"list {kind.plural}", path=kind.path(scope.namespace), query=query)
            try:
                most_bytes = _PAGE_BYTES if size > 1 else _OBJECT_BYTES
                page = await self._connection.send(request, timeout_s=timeout_s, most_bytes=most_bytes)
            except TooLongError:
                if size == 1:
                    raise
                size = max(1, size // _PAGE_SHRINK_FACTOR)
                continue
            some, version, continue_token = parse_list_page(page, kind, description=request.description)
            items += [trim_or_keep(item, trim) for item in some]
            if not continue_token:
                return Listing(items=tuple(items), resource_version=version)
            size = min(2 * size, _PAGE_SIZE)

    async def watch(
        self, kind: Kind, scope: Scope = EVERYWHERE, *, since: str, timeout_s: float, silence_s: float
    ) -> AsyncGenerator[WatchEvent, None]:
        """See `Api.watch`."""
        trim = self._trimmers.get(kind, _untrimmed)
        turn = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
        query = _selectors(scope) | turn | {"timeoutSeconds": str(max(1, round(timeout_s)))}
        request = ApiRequest(description=f"watch {kind.plural}", path=kind.path(scope.namespace), query=query)
        async with self._connection.stream(request, total_s=timeout_s + silence_s, silence_s=silence_s) as body:
            async for line in join_lines(body):
                event = parse_watch_line(line, kind, description=request.description)
                is_whole = event.type is EventType.BOOKMARK
                yield event if is_whole else replace(event, object=trim_or_keep(event.object, trim))

    async def get(
        self, kind: Kind, name: str, *, namespace: str | None = None, subresource: Subresource | None = None
    ) -> Raw:
        """See `Api.get`."""
        return await self._send(_request("get", kind, namespace, name, subresource))

    async def create(self, kind: Kind, body: Raw) -> Raw:
        """See `Api.create`."""
        return await (self._review(kind, body) if kind.is_review else self._post(kind, body))

    async def check_create(self, kind: Kind, body: Raw) -> None:
        """See `Api.check_create`."""
        await self._post(kind, body, dryRun="All", fieldValidation="Strict")

    async def apply(
        self, kind: Kind, body: Raw, *, subresource: Subresource | None = None, is_forced: bool = True
    ) -> Raw:
        """See `Api.apply`."""
        namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
        request = _request("apply", kind, namespace, name, subresource)
        query = {"fieldManager": self._manager, "force": "true" if is_forced else "false"}
        return await self._send(
            replace(request, method="PATCH", query=query, body=with_type(body, kind), content_type=APPLY_PATCH)
        )

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Raw,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        subresource: Subresource | None = None,
    ) -> Raw:
        """See `Api.patch`."""
        request = _request("patch", kind, namespace, name, subresource)
        query, body = {"fieldManager": self._manager}, with_preconditions(change, only)
        return await self._send(replace(request, method="PATCH", query=query, body=body, content_type=MERGE_PATCH))

    async def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str | None = None,
        only: Preconditions = ANY,
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """See `Api.delete`."""
        options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            options["propagationPolicy"] = propagation.value
        if only != ANY:
            options["preconditions"] = only.as_fields()
        await self._send(replace(_request("delete", kind, namespace, name), method="DELETE", body=options))

    async def log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str | None = None,
        tail_lines: int | None = None,
        is_followed: bool = False,
        is_previous: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """See `Api.log`."""
        flags = {"follow": is_followed, "previous": is_previous}
        query = {"container": container, "tailLines": tail_lines} | {key: "true" for key, on in flags.items() if on}
        request = ApiRequest(
            description=f"log of pod {namespace}/{pod}",
            path=f"{PODS.path(namespace, pod)}/log",
            query={key: str(value) for key, value in query.items() if value is not None},
        )
        silence_s = None if is_followed else self._connection.policy.page_timeout_s
        async with self._connection.stream(request, total_s=None, silence_s=silence_s) as body:
            async for chunk in body:
                yield chunk

    async def close(self) -> None:
        """See `Api.close`."""
        await self._connection.close()

    async def _post(self, kind: Kind, body: Raw, **options: str) -> Raw:
        namespace, name = body["metadata"].get("namespace"), body["metadata"]["name"]
        request = _request("create", kind, namespace, name)
        path = PODS.path(namespace, name, "eviction") if kind == EVICTIONS else kind.path(namespace)
        query = {"fieldManager": self._manager, **options}
        return await self._send(replace(request, method="POST", path=path, query=query, body=with_type(body, kind)))

    async def _review(self, kind: Kind, body: Raw) -> Raw:
        """Ask the server: a review has no name, and may hold a token."""
        request = ApiRequest(description=f"create {kind.plural}", path=kind.path(), method="POST", is_secret=True)
        return await self._send(replace(request, body=with_type(body, kind)))

    async def _send(self, request: ApiRequest) -> Raw:
        answer = await self._connection.send(request)
        return parse_object(answer, description=request.description, is_write=request.is_write)


def _request(
    verb: str, kind: Kind, namespace: str | None, name: str, subresource: Subresource | None = None
) -> ApiRequest:
    where = f"{namespace}/{name}" if namespace else name
    description = f"{verb} {kind.plural} {where}"
    return ApiRequest(description=description, path=kind.path(namespace, name, subresource), is_secret=kind == SECRETS)


def _selectors(scope: Scope) -> dict[str, str]:
    found = {"labelSelector": scope.labels, "fieldSelector": scope.fields}
    return {key: value for key, value in found.items() if value}


def _untrimmed(obj: Raw) -> Raw:
    return obj


async def join_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield whole lines of a chunked body; also the last line without its end, which its parser refuses.

    The cost of a line is linear in its length: an object of 9 MB that is edited all the time would otherwise block the
    event loop (A11).
    """
    parts: list[bytes] = []
    async for chunk in chunks:
        first, *more = chunk.split(b"\n")
        parts.append(first)
        for begun in more:
            yield b"".join(parts)
            parts = [begun]
    if last_line := b"".join(parts):
        yield last_line
