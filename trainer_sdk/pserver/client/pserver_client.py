"""Pull and push for a trainer: every batch goes to every server, and every pull is of one lineage.

`trainer_sdk.protocol` decides what follows from verdicts (rules 11 to 14); `fan_out` sends requests, `shares` splits
arrays by server.  Not thread-safe but for `cancel`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt

from master.api.identities import Lineage, Route, ServerPlace, TableSpec
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import NotReadyError, UsageError
from trainer_sdk.pserver.client.fan_out import ServerRequest, ServerRequests, exchange
from trainer_sdk.pserver.client.shares import (
    Share,
    SparseRows,
    check_route,
    dense_gradient,
    new_arrays,
    row_ids,
    rows_by_server,
    rows_in,
    shares,
    sparse_gradient,
)
from trainer_sdk.pserver.core.messages import Push, PushAnswer, PushVerdict, Ruling
from trainer_sdk.pserver.tables.layout import Array, Ids, Layout, row_shape, row_width
from trainer_sdk.pserver.wire.bodies import padded
from trainer_sdk.pserver.wire.heads import (
    PullHead,
    PullStatus,
    PushHead,
    Section,
    SectionKind,
    decode_pull_answer,
    decode_push_answer,
    encode_pull,
    encode_push,
    padding,
)
from trainer_sdk.transport.cancellation import Cancellation
from trainer_sdk.transport.frames import Frame, FrameKind
from trainer_sdk.transport.security import Security
from trainer_sdk.transport.server_connection import ConnectionSettings, ServerConnection

_MIXED_PAUSE_S: Final = 0.02


class PulledTables(NamedTuple):
    """Dense tables as of one lineage.  The arrays are the client's: the next pull overwrites them."""

    lineage: Lineage
    tables: dict[str, Array]


class PulledRows(NamedTuple):
    """Rows of a sparse table: `rows[i]` is the row of the i-th id asked for."""

    lineage: Lineage
    rows: Array


class _PullRequest(NamedTuple):
    """A pull of dense tables: the arrays for its answer, and the requests to each server."""

    tables: dict[str, Array]
    requests: tuple[ServerRequests, ...]


class PserverClient:
    """All parameter servers of a job, seen from one trainer."""

    def __init__(
        self,
        security: Security | None = None,
        settings: ConnectionSettings | None = None,
        *,
        is_outdated: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_outdated` is true once a newer route is known: an unreachable server is then given up at once."""
        self._is_outdated = is_outdated
        self._security = security or Security()
        self._settings = settings or ConnectionSettings()
        self._context = self._security.client_context()
        self._cancellation = Cancellation()
        self._connections: tuple[ServerConnection, ...] = ()
        self._route: Route | None = None
        self._shares: tuple[Share, ...] = ()
        self._layout = Layout.of((), 1)
        self._all_buckets = EMPTY
        self._pull_requests: dict[tuple[str, ...] | None, _PullRequest] = {}
        self._arrays: dict[str, Array] = {}

    def set_route(self, route: Route, tables: tuple[TableSpec, ...], bucket_count: int) -> None:
        """Sends pulls and pushes to the owners in this route from now on.  Raises TableError or UsageError."""
        check_route(route, bucket_count)
        layout = self._layout
        if (tables, bucket_count) != (layout.tables, layout.bucket_count):
            layout = Layout.of(tables, bucket_count)
            self._arrays = new_arrays(tables)
        known = {connection.place: connection for connection in self._connections}
        self._connections = tuple(
            known[place] if place in known else self._connection(place) for place in route.servers
        )
        for place in known.keys() - set(route.servers):
            known[place].close()
        self._layout, self._route, self._shares = layout, route, shares(route, layout)
        self._all_buckets = PositionSet.span(0, bucket_count)
        self._pull_requests.clear()

    def _connection(self, place: ServerPlace) -> ServerConnection:
        return ServerConnection(
            place, self._security, self._settings, self._context, self._cancellation, is_outdated=self._is_outdated
        )

    def cancel(self) -> None:
        """Makes the waiting call and every later one raise ServerUnavailableError.  From any thread."""
        self._cancellation.cancel()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def pull(self, names: Iterable[str] | None = None) -> PulledTables:
        """These dense tables, or all, each bucket untorn and all of one lineage (rule 9).

        Raises NotReadyError (a server restores, or the route is outdated) and ServerUnavailableError.
        """
        pull_request = self._pull_request(names)
        return PulledTables(self._pull_at_one_lineage(pull_request.requests), dict(pull_request.tables))

    def pull_rows(self, name: str, ids: npt.ArrayLike) -> PulledRows:
        """These rows of a sparse table, in this order, repeats allowed.  Raises as `pull` does, and TableError."""
        index = self._layout.index_of(name)
        spec = self._layout.tables[index]
        if spec.kind != "sparse":
            raise UsageError(f"tables.{name} is dense: use pull()")
        requested = row_ids(spec, ids)
        places = rows_by_server(self._layout, self._current(), requested)
        parts = [np.empty((len(at), row_width(spec)), dtype=spec.dtype) for at in places]
        requests = [
            self._rows_request(share, index, requested[at], part)
            for share, at, part in zip(self._shares, places, parts, strict=True)
        ]
        lineage = self._pull_at_one_lineage(requests)
        rows = np.empty((len(requested), row_width(spec)), dtype=spec.dtype)
        for at, part in zip(places, parts, strict=True):
            rows[at] = part
        return PulledRows(lineage=lineage, rows=rows.reshape(len(requested), *row_shape(spec)))

    def push(
        self,
        lineage: Lineage,
        positions: PositionSet,
        gradients: Mapping[str, npt.ArrayLike | SparseRows],
        *,
        buckets: PositionSet | None = None,
    ) -> PushAnswer:
        """Pushes one batch, computed on a pull of `lineage`, to all buckets or to these; the rulings of all servers.

        Every bucket asked for stands in one ruling; HELD only if a hold outlasted the budget.  May be called again with
        the same arguments after any error (rule 9).  Raises ServerUnavailableError, TableError, UsageError.
        """
        deadline_s = time.monotonic() + self._settings.budget_s
        flat = self._checked(positions, gradients)
        unanswered = self._all_buckets if buckets is None else buckets
        rulings: list[Ruling] = []
        while unanswered:
            requests = [self._push_request(share, lineage, positions, flat) for share in self._shares_of(unanswered)]
            answered = _rulings(exchange(self._connections, requests, deadline_s))
            unanswered = _held(answered) if time.monotonic() < deadline_s else EMPTY
            rulings += [ruling for ruling in answered if not unanswered or ruling.verdict is not PushVerdict.HELD]
        return PushAnswer(lineage=lineage, rulings=_merged(rulings))

    def push_and_pull(
        self,
        lineage: Lineage,
        positions: PositionSet,
        gradients: Mapping[str, npt.ArrayLike | SparseRows],
        names: Iterable[str] | None = None,
    ) -> tuple[PushAnswer, PulledTables | None]:
        """`push` to all buckets and `pull` in one round trip: the pull is sent before the push is answered.

        None instead of what was pulled: it was not of one lineage, or some server could not serve it; pull again.
        Raises as `push` does, and may be called again likewise.
        """
        deadline_s = time.monotonic() + self._settings.budget_s
        flat = self._checked(positions, gradients)
        pull_request = self._pull_request(names)
        requests = [
            (*self._push_request(share, lineage, positions, flat), *requested)
            for share, requested in zip(self._shares, pull_request.requests, strict=True)
        ]
        frames = exchange(self._connections, requests, deadline_s)
        rulings = _merged(_rulings(answers[:1] for answers in frames))
        answers = {decode_pull_answer(frame.head) for found in frames for frame in found[1:]}
        pulled = None
        if len(answers) == 1 and (only := answers.pop()).status is PullStatus.OK:
            pulled = PulledTables(only.lineage, dict(pull_request.tables))
        return PushAnswer(lineage=lineage, rulings=rulings), pulled

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _pull_request(self, names: Iterable[str] | None) -> _PullRequest:
        """Requests for a pull of these tables; heads and memory are kept until the route changes."""
        key = None if names is None else tuple(names)
        found = self._pull_requests.get(key)
        if found is None:
            found = self._pull_requests[key] = self._new_pull_request(key)
        return found

    def _new_pull_request(self, names: tuple[str, ...] | None) -> _PullRequest:
        layout = self._layout
        wanted = range(len(layout.tables)) if names is None else [layout.index_of(name) for name in names]
        dense = [index for index in wanted if layout.dense[index] is not None]
        tables = {layout.tables[index].name: self._arrays[layout.tables[index].name] for index in dense}
        return _PullRequest(tables, tuple(self._dense_request(share, dense) for share in self._shares))

    def _dense_request(self, share: Share, tables: Iterable[int]) -> ServerRequests:
        if not share.buckets:
            return ()
        sections: list[Section] = []
        into: list[memoryview] = []
        for index in tables:
            if (cut := share.slices[index]) is not None:
                sections.append(cut.section)
                into += [*cut.pieces(self._arrays[self._layout.tables[index].name].reshape(-1)), *cut.gap]
        head = PullHead(layout=self._layout.digest, buckets=share.buckets, sections=tuple(sections))
        return (ServerRequest(FrameKind.PULL, encode_pull(head), (), into),)

    def _rows_request(self, share: Share, index: int, ids: Ids, into: Array) -> ServerRequests:
        section = Section(index, SectionKind.SPARSE, len(ids))
        head = PullHead(layout=self._layout.digest, buckets=share.buckets, sections=(section,))
        return (ServerRequest(FrameKind.PULL, encode_pull(head), list(padded([ids])), _with_padding([into])),)

    def _push_request(
        self,
        share: Share,
        lineage: Lineage,
        positions: PositionSet,
        gradients: Mapping[int, Array | tuple[Ids, Array]],
    ) -> ServerRequests:
        if not share.targets:
            return ()
        sections: list[Section] = []
        body: list[memoryview] = []
        for index, given in gradients.items():
            if (cut := share.slices[index]) is not None and not isinstance(given, tuple):
                sections.append(cut.section)
                body += cut.pieces(given)
                body += cut.gap
            elif isinstance(given, tuple):
                inside = rows_in(self._layout, given[0], share.buckets)
                ids, rows = (given[0], given[1]) if inside.all() else (given[0][inside], given[1][inside])
                sections.append(Section(index, SectionKind.SPARSE, len(ids)))
                body += chain(padded([ids]), padded([rows]))
        push = Push(lineage=lineage, positions=positions, targets=share.targets)
        head = PushHead(push, self._layout.digest, tuple(sections))
        return (ServerRequest(FrameKind.PUSH, encode_push(head), body),)

    def _shares_of(self, buckets: PositionSet) -> Sequence[Share]:
        if buckets is self._all_buckets:
            return self._shares
        return [share.only(buckets, self._layout) for share in self._shares]

    def _checked(
        self, positions: PositionSet, gradients: Mapping[str, npt.ArrayLike | SparseRows]
    ) -> dict[int, Array | tuple[Ids, Array]]:
        self._current()
        if not positions:
            raise UsageError("push() without positions: pass the positions of the batch")
        out: dict[int, Array | tuple[Ids, Array]] = {}
        for name, given in gradients.items():
            index = self._layout.index_of(name)
            spec = self._layout.tables[index]
            match spec.kind:
                case "dense":
                    out[index] = dense_gradient(spec, self._layout.dtypes[index], given)
                case "sparse":
                    out[index] = sparse_gradient(spec, self._layout.dtypes[index], given)
                case _:
                    assert_never(spec.kind)
        return out

    def _current(self) -> Route:
        if self._route is None:
            raise NotReadyError("the parameter servers are not known yet: wait for the master's route")
        return self._route

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _pull_at_one_lineage(self, requests: Sequence[ServerRequests]) -> Lineage:
        """Pulls from all servers until all answers are of one lineage; mixed answers are discarded."""
        self._current()
        deadline_s = time.monotonic() + self._settings.budget_s
        while True:
            frames = chain.from_iterable(exchange(self._connections, requests, deadline_s))
            answers = [decode_pull_answer(frame.head) for frame in frames]
            if any(answer.status is PullStatus.MOVED for answer in answers):
                raise NotReadyError(
                    "the route is outdated: a parameter server does not have the buckets it names", retry_after_s=0.1
                )
            if any(answer.status is PullStatus.NOT_READY for answer in answers):
                raise NotReadyError("a parameter server is restoring its model", retry_after_s=0.1)
            if len({answer.lineage for answer in answers}) == 1:
                return answers[0].lineage
            if time.monotonic() + _MIXED_PAUSE_S > deadline_s:
                raise NotReadyError("the parameter servers are being rolled back", retry_after_s=0.1)
            time.sleep(_MIXED_PAUSE_S)


def _rulings(frames: Iterable[Sequence[Frame]]) -> list[Ruling]:
    return [ruling for answers in frames for frame in answers for ruling in decode_push_answer(frame.head).rulings]


def _with_padding(pieces: Sequence[Array]) -> list[memoryview]:
    views = [piece.data.cast("B") for piece in pieces if piece.size]
    gap = padding(sum(view.nbytes for view in views))
    return [*views, memoryview(bytearray(gap))] if gap else views


def _held(rulings: Iterable[Ruling]) -> PositionSet:
    held = EMPTY
    for ruling in rulings:
        if ruling.verdict is PushVerdict.HELD:
            held |= ruling.buckets
    return held


def _merged(rulings: Sequence[Ruling]) -> tuple[Ruling, ...]:
    if len(rulings) == 1:
        return tuple(rulings)
    found: dict[tuple[PushVerdict, PositionSet], PositionSet] = {}
    for ruling in rulings:
        key = (ruling.verdict, ruling.positions)
        found[key] = found.get(key, EMPTY) | ruling.buckets
    return tuple(Ruling(buckets=buckets, verdict=verdict, positions=p) for (verdict, p), buckets in found.items())
