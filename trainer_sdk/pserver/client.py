"""Pull and push for a trainer: every batch goes to every server, and what comes back is of one lineage.

A request goes out to all servers before any answer is read, so they work at the same time; with one thread and blocking
sockets, for the trainer has nothing else to do.  A broken connection is made again within the budget and the *same*
request sent again: a bucket that has applied it says REPEAT (rule 6).  What to do with verdicts, rules 11 to 14, is
decided in `trainer_sdk.protocol`.  Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from master.api.identities import LeaseToken, Lineage, Route, TableSpec
from master.api.positions import EMPTY, PositionSet
from trainer_sdk.errors import NotReadyError, ServerUnavailableError, UsageError, WireError
from trainer_sdk.pserver.bodies import padded
from trainer_sdk.pserver.connection import ClientSettings, Connection
from trainer_sdk.pserver.layout import Array, Ids, Layout, row_shape, row_width
from trainer_sdk.pserver.messages import Push, PushAnswer, Ruling, Verdict
from trainer_sdk.pserver.security import Security
from trainer_sdk.pserver.slices import (
    Rows,
    Share,
    check_route,
    dense_gradient,
    new_arrays,
    row_ids,
    rows_by_server,
    rows_in,
    shares,
    sparse_gradient,
)
from trainer_sdk.pserver.wire import Frame, Kind
from trainer_sdk.pserver.wire_messages import (
    PullHead,
    PullStatus,
    PushHead,
    Section,
    Shape,
    decode_pull_answer,
    decode_push_answer,
    encode_pull,
    encode_push,
    padding,
)

_MIXED_PAUSE_S: Final = 0.02
_ANSWERS: Final = frozenset({Kind.PUSH_ANSWER, Kind.PULL_ANSWER})


class Pulled(NamedTuple):
    """Dense tables as of one lineage.  The arrays are the client's: the next pull overwrites them."""

    lineage: Lineage
    tables: dict[str, Array]


class PulledRows(NamedTuple):
    """`rows[i]` is row `ids[i]` of the question."""

    lineage: Lineage
    rows: Array


@dataclass(frozen=True, slots=True)
class _Request:
    """One frame to one server, and where the body of its answer goes."""

    kind: Kind
    head: bytes
    body: Sequence[memoryview]
    into: Sequence[memoryview] = ()


class PserverClient:
    """All parameter servers of a job, seen from one trainer."""

    def __init__(self, security: Security | None = None, settings: ClientSettings | None = None) -> None:
        self._security = security or Security()
        self._settings = settings or ClientSettings()
        self._context = self._security.client_context()
        self._connections: tuple[Connection, ...] = ()
        self._route: Route | None = None
        self._shares: tuple[Share, ...] = ()
        self._layout = Layout.of((), 1)
        self._arrays: dict[str, Array] = {}

    def set_route(self, route: Route, tables: tuple[TableSpec, ...], bucket_count: int) -> None:
        """From now on pulls and pushes go to the owners that it names.  Raises TableError or UsageError."""
        check_route(route, bucket_count)
        layout = Layout.of(tables, bucket_count)
        if layout.digest != self._layout.digest:
            self._arrays = new_arrays(tables)
        known = {connection.place: connection for connection in self._connections}
        self._connections = tuple(
            known[place] if place in known else Connection(place, self._security, self._settings, self._context)
            for place in route.servers
        )
        for place in known.keys() - set(route.servers):
            known[place].close()
        self._layout, self._route, self._shares = layout, route, shares(route)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def pull(self, names: Iterable[str] | None = None) -> Pulled:
        """These dense tables, or all, each bucket untorn and all of one lineage (rule 9).

        Raises NotReadyError (a server restores, or the route is old) and ServerUnavailableError.
        """
        specs = self._layout.tables
        wanted = [self._layout.index_of(name) for name in names] if names is not None else range(len(specs))
        tables = [index for index in wanted if specs[index].kind == "dense"]
        lineage = self._pull_at_one_lineage(lambda share, _: self._dense_question(share, tables))
        return Pulled(lineage=lineage, tables={specs[index].name: self._arrays[specs[index].name] for index in tables})

    def pull_rows(self, name: str, ids: npt.ArrayLike) -> PulledRows:
        """These rows of a sparse table, in this order, repeats allowed.  Raises as `pull` does, and TableError."""
        index = self._layout.index_of(name)
        spec = self._layout.tables[index]
        if spec.kind != "sparse":
            raise UsageError(f"tables.{name} is dense: use pull()")
        asked = row_ids(spec, ids)
        places = rows_by_server(self._layout, self._current(), asked)
        parts = [np.empty((len(at), row_width(spec)), dtype=spec.dtype) for at in places]
        lineage = self._pull_at_one_lineage(
            lambda share, server: self._rows_question(share, index, asked[places[server]], parts[server])
        )
        rows = np.empty((len(asked), row_width(spec)), dtype=spec.dtype)
        for at, part in zip(places, parts, strict=True):
            rows[at] = part
        return PulledRows(lineage=lineage, rows=rows.reshape(len(asked), *row_shape(spec)))

    def push(
        self,
        lineage: Lineage,
        positions: PositionSet,
        gradients: Mapping[str, npt.ArrayLike | Rows],
        *,
        token: LeaseToken | None = None,
        buckets: PositionSet | None = None,
    ) -> PushAnswer:
        """One batch, computed on a pull of `lineage`, to all buckets or to these; the rulings of all servers.

        Every bucket asked for stands in one ruling; HELD only if a hold outlasted the budget.  May be called again with
        the same arguments after any error (rule 9).  Raises ServerUnavailableError, TableError, UsageError.
        """
        if not positions:
            raise UsageError("push() of no positions: say which samples the gradient is of")
        flat = self._checked(gradients)
        left = self._current_buckets() if buckets is None else buckets
        deadline_s = time.monotonic() + self._settings.budget_s
        rulings: list[Ruling] = []
        while left:
            requests = [self._push_request(share.only(left), lineage, positions, flat, token) for share in self._shares]
            answers = [decode_push_answer(f.head) for f in self._exchange(requests, deadline_s) if f is not None]
            said = [ruling for answer in answers for ruling in answer.rulings]
            left = _held(said) if time.monotonic() < deadline_s else EMPTY
            rulings += [ruling for ruling in said if not left or ruling.verdict is not Verdict.HELD]
        return PushAnswer(lineage=lineage, rulings=_merged(rulings))

    # ---- questions --------------------------------------------------------------------------------------------------

    def _dense_question(self, share: Share, tables: Sequence[int]) -> _Request:
        sections: list[Section] = []
        into: list[memoryview] = []
        for index in tables:
            pieces = self._pieces(index, self._arrays[self._layout.tables[index].name].reshape(-1), share.buckets)
            sections.append(Section(index, Shape.DENSE, sum(len(piece) for piece in pieces)))
            into += _with_padding(pieces)
        head = PullHead(layout=self._layout.digest, buckets=share.buckets, sections=tuple(sections))
        return _Request(Kind.PULL, encode_pull(head), (), into)

    def _rows_question(self, share: Share, index: int, ids: Ids, into: Array) -> _Request:
        section = Section(index, Shape.SPARSE, len(ids))
        head = PullHead(layout=self._layout.digest, buckets=share.buckets, sections=(section,))
        return _Request(Kind.PULL, encode_pull(head), list(padded([ids])), _with_padding([into]))

    def _push_request(
        self,
        share: Share,
        lineage: Lineage,
        positions: PositionSet,
        gradients: Mapping[int, Array | tuple[Ids, Array]],
        token: LeaseToken | None,
    ) -> _Request | None:
        if not share.targets:
            return None
        sections: list[Section] = []
        body: list[memoryview] = []
        for index, given in gradients.items():
            if isinstance(given, tuple):
                inside = rows_in(self._layout, given[0], share.buckets)
                ids, rows = (given[0], given[1]) if inside.all() else (given[0][inside], given[1][inside])
                sections.append(Section(index, Shape.SPARSE, len(ids)))
                body += chain(padded([ids]), padded([rows]))
            else:
                pieces = self._pieces(index, given, share.buckets)
                sections.append(Section(index, Shape.DENSE, sum(len(piece) for piece in pieces)))
                body += padded(pieces)
        push = Push(lineage=lineage, positions=positions, targets=share.targets, token=token)
        return _Request(
            Kind.PUSH, encode_push(PushHead(push=push, layout=self._layout.digest, sections=tuple(sections))), body
        )

    def _pieces(self, index: int, flat: Array, buckets: PositionSet) -> list[Array]:
        dense = self._layout.dense[index]
        return [flat[start:stop] for start, stop in dense.runs(buckets)] if dense is not None else []

    def _checked(self, gradients: Mapping[str, npt.ArrayLike | Rows]) -> dict[int, Array | tuple[Ids, Array]]:
        out: dict[int, Array | tuple[Ids, Array]] = {}
        for name, given in gradients.items():
            index = self._layout.index_of(name)
            spec = self._layout.tables[index]
            if spec.kind == "sparse":
                out[index] = sparse_gradient(spec, given)
            else:
                out[index] = dense_gradient(spec, given)
        return out

    def _current(self) -> Route:
        if self._route is None:
            raise NotReadyError("the parameter servers are not known yet: wait for the master's route")
        return self._route

    def _current_buckets(self) -> PositionSet:
        return PositionSet.span(0, len(self._current().owner))

    # ---- talking ----------------------------------------------------------------------------------------------------

    def _pull_at_one_lineage(self, question: Callable[[Share, int], _Request]) -> Lineage:
        """Asks all servers until all answers are of one lineage; a mixture is discarded."""
        self._current()
        deadline_s = time.monotonic() + self._settings.budget_s
        while True:
            requests = [question(share, server) if share.buckets else None for server, share in enumerate(self._shares)]
            answers = [decode_pull_answer(f.head) for f in self._exchange(requests, deadline_s) if f is not None]
            if any(answer.status is PullStatus.MOVED for answer in answers):
                raise NotReadyError(
                    "a parameter server does not hold what the route says: it is old", retry_after_s=0.1
                )
            if any(answer.status is PullStatus.NOT_READY for answer in answers):
                raise NotReadyError("a parameter server is restoring its model", retry_after_s=0.1)
            if len({answer.lineage for answer in answers}) == 1:
                return answers[0].lineage
            if time.monotonic() + _MIXED_PAUSE_S > deadline_s:
                raise NotReadyError("the parameter servers are being rolled back", retry_after_s=0.1)
            time.sleep(_MIXED_PAUSE_S)

    def _exchange(self, requests: Sequence[_Request | None], deadline_s: float) -> list[Frame | None]:
        """One answer for each request, in order; sent again over a new connection as often as the budget allows."""
        answers: list[Frame | None] = [None] * len(requests)
        waiting = {index: request for index, request in enumerate(requests) if request is not None}
        while waiting:
            unanswered: set[int] = set()
            try:
                for index, request in waiting.items():
                    if _try_send(self._connections[index], request, deadline_s):
                        unanswered.add(index)
                for index in sorted(unanswered):
                    answers[index] = _try_receive(self._connections[index], waiting[index])
                    unanswered.discard(index)
            finally:
                for index in unanswered:  # an error: an answer that nobody reads must not be taken for the next one
                    self._connections[index].close()
            waiting = {index: request for index, request in waiting.items() if answers[index] is None}
            if waiting and time.monotonic() >= deadline_s:
                names = ", ".join(self._connections[index].place.name for index in waiting)
                raise ServerUnavailableError(f"no answer within {self._settings.budget_s} s from {names}")
        return answers


def _try_send(connection: Connection, request: _Request, deadline_s: float) -> bool:
    """False: the connection broke.  Raises ServerUnavailableError when none can be made."""
    channel = connection.channel(deadline_s)
    try:
        channel.send(request.kind, request.head, request.body)
    except OSError:
        connection.close()
        return False
    return True


def _try_receive(connection: Connection, request: _Request) -> Frame | None:
    """None: the connection broke.  Raises WireError when the server refuses or answers something else."""
    channel = connection.channel(0.0)
    try:
        frame = channel.receive()
        if frame.body_bytes == sum(piece.nbytes for piece in request.into):
            channel.receive_into(request.into)
            return frame
    except OSError:
        connection.close()
        return None
    if frame.kind in _ANSWERS and not frame.body_bytes:
        return frame  # no model there, say
    raise WireError(f"{connection.place.name} refuses: {frame.head[:4096].decode(errors='replace')}")


def _with_padding(pieces: Sequence[Array]) -> list[memoryview]:
    views = [piece.data.cast("B") for piece in pieces if piece.size]
    gap = padding(sum(view.nbytes for view in views))
    return [*views, memoryview(bytearray(gap))] if gap else views


def _held(rulings: Iterable[Ruling]) -> PositionSet:
    held = EMPTY
    for ruling in rulings:
        if ruling.verdict is Verdict.HELD:
            held |= ruling.buckets
    return held


def _merged(rulings: Iterable[Ruling]) -> tuple[Ruling, ...]:
    found: dict[tuple[Verdict, PositionSet], PositionSet] = {}
    for ruling in rulings:
        key = (ruling.verdict, ruling.positions)
        found[key] = found.get(key, EMPTY) | ruling.buckets
    return tuple(Ruling(buckets=buckets, verdict=verdict, positions=p) for (verdict, p), buckets in found.items())
