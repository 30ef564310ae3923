"""An IterableDataset in a group: its records in its own order, each once an epoch, whoever comes, goes or fails (M10).

Members are threads, as in `test_group_training`; each has a stream of its own, which notes what is read of it.
"""

from collections import Counter

import pytest

from master.api.identities import DatasetSpec
from tests.harness.thread_group import ThreadGroup
from trainer_sdk.errors import UsageError

torch = pytest.importorskip("torch", reason="LEFT OUT: torch is not installed (make frameworks)")

from tests.harness.torch_training import (  # noqa: E402
    Records,
    Script,
    assert_close,
    assert_same_bits,
    train_group,
    whole_loop,
)
from trainer_sdk.torch.record_stream import StreamSource  # noqa: E402

pytestmark = pytest.mark.timeout(60)
DATASET = DatasetSpec(name="stream", size=24, epochs=2, batch_size=8, seed=3)


class Stream(torch.utils.data.IterableDataset):
    """Records 0, 1, ... of `Records`; `read` notes those that were given."""

    def __init__(self, size=24, *, has_noise=False):
        super().__init__()
        self.records, self.size, self.read = Records(max(size, 1), has_noise=has_noise), size, []

    def __iter__(self):
        return self.iterate(0)

    def iterate(self, place):
        for number in range(place, self.size):
            self.read.append(number)
            yield self.records[number]


class Seekable(Stream):
    def iterate_from(self, place):
        return self.iterate(place)


class WithoutNorm(Script):
    """All ranks begin with the same weights; a batch normalisation would depend on the division into micro-batches."""

    def __init__(self, rank):
        super().__init__(0, has_norm=False)


def train(group, loop=whole_loop, *, stream=Stream, size=24, **options):
    """`train_group` with a stream of its own for each rank."""
    return train_group(group, loop, make=WithoutNorm, dataset=stream, size=size, **options)


def plain():
    """A plain script on the stream's global batches."""
    script, records = WithoutNorm(0), Records(DATASET.size)
    for _ in range(DATASET.epochs):
        for begin in range(0, DATASET.size, DATASET.batch_size):
            chosen = slice(begin, begin + DATASET.batch_size)
            torch.nn.functional.cross_entropy(script.model(records.x[chosen]), records.y[chosen]).backward()
            torch.nn.utils.clip_grad_norm_(script.model.parameters(), 0.5)
            script.update()
    return script.state()


CHANGES = {
    "one": {"sizes": {0: 1}},
    "three": {"sizes": {0: 3}},
    "joins and leaves": {"sizes": {0: 1, 2: 3, 4: 2}},
    "all of it": {"sizes": {0: 2, 3: 3, 5: 2}, "aborts": {0: 0, 2: 1, 3: 2}, "late": {3: 1}},
}


@pytest.mark.parametrize("stream", [Stream, Seekable])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_group_trains_the_stream_in_its_order(change, stream):
    """As a plain script does, at any size and after any change."""
    scripts = train(ThreadGroup(DATASET, **change), stream=stream, micro_batch=3)
    present = [script.state() for script in scripts if not script.session.steps.has_left]
    assert_same_bits(present)
    assert_close(present[0], plain())


def test_stream_is_read_once_an_epoch_though_steps_come_again_at_other_sizes():
    """Who has passed over a record keeps it for the step that comes again."""
    group = ThreadGroup(DATASET, {0: 2, 2: 3, 4: 2}, aborts={1: 0, 2: 1, 4: 1})
    first, second, _ = train(group, micro_batch=3)
    for script in (first, second):
        assert Counter(script.dataset.read) <= Counter(dict.fromkeys(range(DATASET.size), DATASET.epochs))


def test_stream_that_can_seek_reads_its_own_share_alone():
    """`iterate_from` passes over what others train."""
    scripts = train(ThreadGroup(DATASET, {0: 2}), stream=Seekable)
    read = [Counter(script.dataset.read) for script in scripts]
    assert read[0] + read[1] == dict.fromkeys(range(DATASET.size), DATASET.epochs)


@pytest.mark.parametrize("stream", [Stream, Seekable])
def test_random_numbers_of_a_stream_are_those_of_the_position(stream):
    """Augmentation within it comes out alike whatever was read before; groups of one, for threads share generators."""
    seen = {}

    def loop(script, loader, session):
        for x, y in loader:
            for position, row in zip(session.steps.given[-1].positions, x, strict=True):
                seen.setdefault(position, row)
                assert torch.equal(seen[position], row)
            script.round(loader, x, y)

    for aborts in (None, {1: 0, 4: 1}):
        train(ThreadGroup(DATASET, {0: 1}, aborts=aborts), loop, stream=lambda: stream(has_noise=True))
    assert len(torch.stack([*seen.values()]).unique(dim=0)) == DATASET.size * DATASET.epochs
    (x, _) = StreamSource(stream(has_noise=True), 3, None, size=24, kept=8).__getitems__([(30, 6), (47, 23)])
    assert torch.equal(x, torch.stack([seen[30], seen[47]]))


# ---- one reader -----------------------------------------------------------------------------------------------------


class Numbers(torch.utils.data.IterableDataset):
    """0, 1, ... in a list each; `begun` counts how often it was begun."""

    def __init__(self, count):
        self.count, self.begun = count, 0

    def __iter__(self):
        self.begun += 1
        return iter([[number] for number in range(self.count)])


class Shuffled(Numbers):
    """In a random order, drawn as it is read."""

    def __iter__(self):
        buffer = [*range(self.count)]
        while buffer:
            yield [buffer.pop(int(torch.randint(len(buffer), ())))]


class OfEpochs(Numbers):
    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([[1000 * self.epoch + number] for number in range(self.count)])


def source(dataset, *, size=10, kept=4, collate_fn=list):
    return StreamSource(dataset, 3, collate_fn, size=size, kept=kept)


def ask(reader, *positions):
    return [record[0] for record in reader.__getitems__([(position, position % 10) for position in positions])]


def test_records_that_are_kept_are_not_read_again_and_older_ones_are():
    """Beyond what is kept the stream begins anew: slow, and the same records."""
    numbers = Numbers(10)
    reader = source(numbers)
    assert ask(reader, 5) == [5]
    assert ask(reader, 3, 4, 2, 6) == [3, 4, 2, 6]
    assert numbers.begun == 1
    assert ask(reader, 1) == [1]
    assert numbers.begun == 2
    assert ask(reader, 9, 10, 19) == [9, 0, 9]
    assert ask(reader, 9) == [9]


def test_stream_that_shuffles_gives_each_reader_the_same_order():
    """Random numbers begin anew at each position, also of records that are passed over; epochs differ."""
    whole = ask(source(Shuffled(10), kept=30), *range(20))
    assert sorted(whole) == sorted([*range(10)] * 2)
    assert whole[:10] != whole[10:]
    assert ask(source(Shuffled(10)), 3, 7, 14, 18) == [whole[place] for place in (3, 7, 14, 18)]


def test_stream_is_told_its_epoch():
    """As other loaders do, before each time through it."""
    assert ask(source(OfEpochs(10)), 4, 14, 5) == [4, 1004, 5]


def test_what_a_script_may_change_is_copied():
    """With a collate function of its own it may be given the very records."""
    reader = source(Numbers(10))
    for _ in range(2):
        (record,) = reader.__getitems__([(2, 2)])
        assert record == [2]
        record[0] = -1


@pytest.mark.parametrize("positions", [[8], [18]])
def test_stream_that_ends_early_is_refused(positions):
    """It names the data set, what it has, and what to write."""
    reader = source(Numbers(8))
    with pytest.raises(UsageError, match=r"dataset: Numbers ended after 8 records of epoch \d, and size is 10: give"):
        ask(reader, *positions)


def test_stream_that_goes_on_is_refused_before_its_last_record_is_trained():
    """Else the rest of it would never be trained."""
    reader = source(Numbers(11))
    assert ask(reader, 8) == [8]
    with pytest.raises(UsageError, match="dataset: Numbers goes on after 10 records of epoch 0"):
        ask(reader, 9)


def test_stream_that_fails_begins_anew():
    """An error of the data set's own is the script's to see; the next try reads from the beginning."""

    class Failing(Numbers):
        def __iter__(self):
            self.begun += 1
            for number in range(self.count):
                if number == 5 and self.begun == 1:
                    raise OSError("unplugged")
                yield [number]

    reader = source(Failing(10), kept=1)
    with pytest.raises(OSError, match="unplugged"):
        ask(reader, 7)
    assert ask(reader, 7) == [7]


def test_size_is_needed_and_has_a_range():
    """A stream with len() needs none; a data set that is read by number takes none."""

    def refused(message, **options):
        with pytest.raises(UsageError, match=message):
            train_group(ThreadGroup(DATASET, {0: 1}), whole_loop, make=WithoutNorm, **options)

    refused("size: Stream is a stream without len\\(\\); give loader\\(size=...\\)", dataset=Stream())
    refused("size: 0 is not an integer from 1 up", dataset=Stream(), size=0)
    refused("size: Records is no IterableDataset", dataset=Records(), size=24)
