"""Buckets that come and go between servers, amid pushes and cuts: every number is that of a model that never moved."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from master.api.identities import Initialiser, OptimiserSpec, TableSpec
from master.api.positions import PositionSet
from trainer_sdk.pserver.tables.bucket_codec import check_contents
from trainer_sdk.pserver.tables.layout import Layout, buckets_of_rows
from trainer_sdk.pserver.tables.model import DenseGradient, ForkedModel, Model, Portion, SparseGradient

BUCKETS = 8
ALL = PositionSet.span(0, BUCKETS)
ROWS = 60
KINDS = ("sgd", "momentum", "adagrad", "adam")


def tables(kind):
    optimiser = OptimiserSpec(kind=kind, learning_rate=0.1)
    noise = Initialiser(kind="normal", scale=1.0, seed=3)
    return Layout.of(
        (
            TableSpec(name="w", shape=(9, 70), initialiser=noise, optimiser=optimiser),
            TableSpec(name="b", shape=(3,), initialiser=noise, optimiser=optimiser),
            TableSpec(name="e", shape=(ROWS, 2), kind="sparse", initialiser=noise, optimiser=optimiser),
        ),
        BUCKETS,
    )


class Pair:
    """Two servers that share the buckets, and one that has them all."""

    def __init__(self, kind):
        self.layout = tables(kind)
        self.servers = [Model(self.layout, PositionSet.span(0, 5)), Model(self.layout, PositionSet.span(5, BUCKETS))]
        self.whole = Model(self.layout, ALL)
        self.travelling = {}  # bucket -> (contents, where to)
        self.ahead = {}  # bucket -> rows that have gone already
        self.listed = None  # by server, while a cut is open
        self.is_sealed = False

    def push(self, seed, size):
        """One batch, in whole; while a cut is open the fork gets it too, unless it is sealed."""
        random = np.random.default_rng(seed)
        dense = [random.normal(size=spec.size).astype(np.float32) for spec in self.layout.dense if spec]
        ids = random.choice(ROWS, size, replace=True).astype(np.int64)
        rows = random.normal(size=(size, 2)).astype(np.float32)
        for model in (*self.servers, self.whole):
            for buckets in self.halves(model):
                self.step(model, buckets, dense, ids, rows)
        for bucket in self.travelling:  # frozen: what the whole model now has, it gets when it has arrived
            self.travelling[bucket][2].append((dense, ids, rows))

    def halves(self, model):
        """(buckets that this push reaches with the fork, buckets that it reaches live only)."""
        if self.listed is None or self.is_sealed:
            return [(model.buckets, False)]
        both = ALL if model is self.whole else self.listed[self.servers.index(model)]
        return [(both & model.buckets, True), (model.buckets - both, False)]

    def step(self, model, part, dense, ids, rows):
        buckets, to_fork = part
        if not buckets:
            return
        mine = np.isin(buckets_of_rows(ids, BUCKETS), list(buckets))
        flat = [
            np.concatenate([values[start:end] for start, end in layout.runs(buckets)] or [values[:0]])
            for values, layout in zip(dense, self.layout.dense, strict=False)
        ]
        gradients = [DenseGradient(table=0, values=flat[0]), DenseGradient(table=1, values=flat[1])]
        gradients.append(SparseGradient(table=2, ids=ids[mine], rows=rows[mine].copy()))
        model.check(gradients, buckets)
        model.apply(buckets, gradients, buckets, to_fork=to_fork)

    def go_ahead(self, bucket):
        """Its rows are copied while it is trained; once more if it is said again (rule 42)."""
        if bucket in self.travelling:
            return
        model = next(model for model in self.servers if bucket in model.buckets)
        model.watch(bucket)
        self.ahead[bucket] = dict(model.content(bucket, Portion.ROWS))
        check_contents(self.layout, bucket, self.ahead[bucket], has_dense=False)

    def leave(self, bucket):
        """Frozen, copied, gone from its server; a fork that stays wants nothing of it any more (rule 59)."""
        if bucket in self.travelling:
            return
        source = next(number for number, model in enumerate(self.servers) if bucket in model.buckets)
        self.seal()
        ahead, model = self.ahead.pop(bucket, None), self.servers[source]
        content = dict(model.content(bucket, Portion.ALL if ahead is None else Portion.REST))
        check_contents(self.layout, bucket, content)
        assert sum(map(size_of, content.values())) <= model.rest_bytes(bucket)
        model.remove(PositionSet.of(bucket))
        self.travelling[bucket] = ([content] if ahead is None else [ahead, content], 1 - source, [])

    def arrive(self, bucket):
        """Live at the other server, which then gets what was pushed meanwhile."""
        if bucket not in self.travelling:
            return
        contents, target, missed = self.travelling.pop(bucket)
        for content in contents:
            self.servers[target].install(bucket, content)
        for batch in missed:
            self.step(self.servers[target], (PositionSet.of(bucket), False), *batch)

    def cut(self):
        """What is on its way is listed by nobody (rule 58)."""
        self.drop()
        self.listed = [model.buckets for model in self.servers]
        for model, buckets in zip((*self.servers, self.whole), (*self.listed, ALL), strict=True):
            model.open_fork(buckets)

    def seal(self):
        self.is_sealed = self.listed is not None

    def drop(self):
        self.listed, self.is_sealed = None, False
        for model in (*self.servers, self.whole):
            model.drop_fork()

    def check(self):
        for bucket in list(self.travelling):
            self.arrive(bucket)
        if self.listed is not None:
            for model, buckets in zip(self.servers, self.listed, strict=True):
                assert forked(model, buckets) == forked(self.whole, buckets)
        for model in self.servers:
            assert plain(model, model.buckets) == plain(self.whole, model.buckets)
        assert self.servers[0].buckets | self.servers[1].buckets == ALL
        trained = sum(model.stores[2].row_count for model in self.servers)
        assert trained == self.whole.stores[2].row_count


def size_of(arrays):
    """Bytes of values and slots."""
    return sum(array.nbytes for name, array in arrays.items() if name not in {"ids", "steps"})


def plain(model, buckets):
    return {bucket: listed(model.content(bucket)) for bucket in buckets}


def forked(model, buckets):
    reader = ForkedModel(model)
    reader.arrange()
    return {bucket: listed(reader.read(bucket)) for bucket in buckets}


def listed(content):
    return [(table, name, array.tolist()) for table, arrays in content for name, array in arrays.items()]


BUCKET = st.integers(0, BUCKETS - 1)
PUSH = st.tuples(st.just("push"), st.integers(0, 999), st.integers(0, 30))
MOVE = st.one_of(st.tuples(st.sampled_from(["go_ahead", "leave", "arrive"]), BUCKET), PUSH)
CUT = st.one_of(st.sampled_from([("cut",), ("seal",), ("drop",)]), PUSH)


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    before=st.lists(st.one_of(MOVE, CUT), min_size=3, max_size=15),
    during=st.lists(MOVE, min_size=3, max_size=20),
)
def test_moves_pushes_and_cuts_in_any_order_change_no_number(kind, before, during):
    """Values, slots and step counts, live and forked, bit for bit (rules 5, 20, 21, 43, 59)."""
    pair = Pair(kind)
    pair.push(1, 30)
    for what, *arguments in (*before, ("cut",), *during):
        getattr(pair, what)(*arguments)
    pair.check()


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(KINDS), order=st.permutations(range(BUCKETS)), seed=st.integers(0, 99))
def test_every_bucket_there_and_back_again_is_what_it_was(kind, order, seed):
    """Places of rows and blocks that were given back are used again, and hold nothing of before."""
    pair = Pair(kind)
    pair.push(seed, 30)
    for number, bucket in enumerate((*order, *reversed(order))):
        if number % 3:
            pair.go_ahead(bucket)
            pair.push(seed + 50 + number, number % 7)
        pair.leave(bucket)
        pair.push(seed + number, 5)
        pair.arrive(bucket)
    pair.check()
    assert pair.servers[0].buckets | pair.servers[1].buckets == ALL
