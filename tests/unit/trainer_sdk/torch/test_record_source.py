"""Micro-batches of a script's data set: what torch's own DataLoader gives for the same records."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset  # noqa: E402

from trainer_sdk.errors import UsageError  # noqa: E402
from trainer_sdk.torch.record_source import RecordSource, size_of  # noqa: E402
from trainer_sdk.torch.record_stream import stream_size  # noqa: E402
from trainer_sdk.torch.seeds import numpy_and_python_states, seed_generators  # noqa: E402

RECORDS = (5, 0, 3)


class Squares(Dataset):
    """A data set of the script's own, by record."""

    def __len__(self):
        return 6

    def __getitem__(self, record):
        return {"square": torch.tensor(record**2), "name": f"record {record}"}


class SquaresAtOnce(Squares):
    """A data set that gives all records of a batch at once."""

    def __getitems__(self, records):
        return [self[record] for record in records]


def parts_of(make):
    return lambda: Subset(Subset(make(), range(6)), [5, 4, 3, 2, 1, 0])


def tensors():
    grid = torch.arange(24.0).reshape(6, 2, 2).transpose(1, 2)
    return TensorDataset(grid, torch.arange(6), torch.arange(6) > 2, torch.zeros(6, 0, dtype=torch.bfloat16))


def with_a_gradient():
    return TensorDataset(torch.arange(6.0, requires_grad=True), torch.arange(6))


SUBSETS = (parts_of(Squares), parts_of(SquaresAtOnce))


@pytest.mark.parametrize("make", [tensors, with_a_gradient, Squares, SquaresAtOnce, *SUBSETS])
@pytest.mark.parametrize("collate_fn", [None, lambda records: ("own", records)])
def test_micro_batch_is_that_of_a_data_loader(make, collate_fn):
    """Also where rows are selected without reading record by record: types, shapes, strides and values are the same."""
    source = RecordSource(make(), 1, collate_fn)

    own = source.__getitems__([(position, record) for position, record in enumerate(RECORDS)])

    (theirs,) = DataLoader(make(), batch_sampler=[RECORDS], collate_fn=collate_fn)
    assert_same(own, theirs)


def assert_same(own, theirs):
    assert type(own) is type(theirs)
    if isinstance(own, torch.Tensor):
        assert own.dtype is theirs.dtype
        assert own.stride() == theirs.stride()
        assert own.requires_grad == theirs.requires_grad
        assert torch.equal(own, theirs)
    elif isinstance(own, dict):
        assert own.keys() == theirs.keys()
        for key, value in own.items():
            assert_same(value, theirs[key])
    elif isinstance(own, list | tuple):
        assert len(own) == len(theirs)
        for one, other in zip(own, theirs, strict=True):
            assert_same(one, other)
    else:
        assert own == theirs


def test_micro_batch_of_a_tensor_data_set_is_the_scripts_own():
    """Writing to it leaves the data set as it was."""
    data = tensors()

    RecordSource(data, 1, None).__getitems__([(0, 2)])[0].fill_(-1)

    assert torch.equal(data.tensors[0], tensors().tensors[0])


class Augmented(Dataset):
    """A data set that draws from a generator for some records alone, and counts what it reads."""

    def __init__(self, draw):
        self.draw, self.read = draw, []

    def __getitem__(self, record):
        self.read.append(record)
        return record, self.draw() if record > 2 else 0.0


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: float(torch.rand(()))])
def test_augmentation_of_a_record_is_the_same_whatever_was_read_before(draw):
    """Also of the first record that draws: its batch is read again with seeds, and none after it (rule 66)."""
    (alone,) = RecordSource(Augmented(draw), 1, list).__getitems__([(9, 5)])
    data = Augmented(draw)
    source = RecordSource(data, 1, list)

    batches = [source.__getitems__(keys) for keys in ([(1, 0), (2, 1)], [(7, 2), (9, 5)], [(8, 3), (9, 5)])]

    assert batches[1][1] == batches[2][1] == alone
    assert batches[2][0][1] != alone[1]
    assert data.read[:4] == [0, 1, 2, 5]
    assert data.read[-2:] == [3, 5]
    assert len(data.read) <= 8


@pytest.mark.parametrize("make", [tensors, Squares])
def test_collate_function_that_draws_gets_the_numbers_of_its_records(make):
    """As one that mixes records does: the same micro-batch has the same numbers, whatever was read before (rule 66)."""

    def collate(records):
        return len(records) < 3 and (random.random(), np.random.rand(), float(torch.rand(())))  # noqa: NPY002  the one that scripts use

    alone = RecordSource(make(), 1, collate).__getitems__([(8, 1), (9, 2)])
    source = RecordSource(make(), 1, collate)

    batches = [source.__getitems__(keys) for keys in ([(0, 0), (1, 1), (2, 2)], [(8, 1), (9, 2)], [(8, 1), (7, 2)])]

    assert batches[1] == alone
    assert not set(batches[2]) & set(alone)


DRAWS = {
    "torch": lambda: torch.rand(()).item(),
    "NumPy": np.random.random,
    "Python": random.random,
    "the seed of torch": torch.initial_seed,
    "nothing": lambda: 0.0,
}


class Noisy(Dataset):
    """From the third record on it draws."""

    def __init__(self, draw):
        self.draw = draw

    def __getitem__(self, record):
        return record, self.draw() if record > 2 else 0.0


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_that_a_record_draws_are_those_of_its_position(name):
    """Whoever reads it, with whatever other records, and whatever was drawn before (rule 66)."""
    keys = [(10 + record, record) for record in range(6)]
    torch.manual_seed(99)
    alone = [RecordSource(Noisy(DRAWS[name]), 1, list).__getitems__([key])[0] for key in keys]
    torch.manual_seed(7)
    source = RecordSource(Noisy(DRAWS[name]), 1, list)
    together = [*source.__getitems__(keys[:2]), *source.__getitems__(keys[2:5]), *source.__getitems__(keys[5:])]
    assert together == alone
    if name in ("torch", "NumPy", "Python"):
        assert len({drawn for _, drawn in together}) == 4


@pytest.mark.parametrize("name", ["torch", "NumPy", "Python"])
def test_records_of_a_subset_draw_the_numbers_of_their_positions(name):
    """As random_split gives it: with whatever other records they are read (rule 66)."""
    keys = [(10 + record, record) for record in range(6)]

    def read(*parts):
        source = RecordSource(Subset(Noisy(DRAWS[name]), range(6)), 1, list)
        return [record for part in parts for record in source.__getitems__(part)]

    assert read(keys[:2], keys[2:5], keys[5:]) == read(*([key] for key in keys))


OF_NUMPY = np.random.mtrand._rand  # what scripts call as np.random.rand
WAYS_TO_DRAW = {
    "rand": OF_NUMPY.rand,
    "randn": OF_NUMPY.randn,
    "bytes": lambda: OF_NUMPY.bytes(3),
    "shuffle": lambda: OF_NUMPY.shuffle([1, 2, 3]),
    "random": random.random,
    "randrange": lambda: random.randrange(2),
}


@pytest.mark.parametrize("draw", WAYS_TO_DRAW.values(), ids=WAYS_TO_DRAW)
def test_draw_from_the_generator_of_numpy_or_python_is_seen(draw):
    """So that records are read with seeds of their own from then on."""
    seed_generators(1, 2, b"test")
    before = numpy_and_python_states()
    assert numpy_and_python_states() == before
    draw()
    assert numpy_and_python_states() != before


def test_generator_of_the_data_sets_own_is_its_own_affair():
    before = numpy_and_python_states()
    np.random.RandomState(3).rand()
    random.Random(3).random()
    assert numpy_and_python_states() == before


class Sized(Dataset):
    """A data set of another length than a list can have."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, record):
        return record


@pytest.mark.parametrize(
    ("length", "said"), [(2.0, "'float' object"), (-3, "should return >= 0"), (2**63, "cannot fit")]
)
@pytest.mark.parametrize("size", [size_of, lambda dataset: stream_size(dataset, None)])
def test_length_that_is_no_number_of_records_is_told_by_its_field(size, length, said):
    """It was "has no len()" of a float, and an error of Python's that names nothing of -3."""
    with pytest.raises(UsageError, match=rf"dataset: len\(\) of Sized fails \(.*{said}.*\); its __len__ returns"):
        size(Sized(length))
