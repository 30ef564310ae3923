"""Data loaded by the worker processes of a torch DataLoader: what works, and what the error for the rest says."""

import pytest

from tests.harness.job_processes import PROGRAMS
from tests.harness.lone_script import run_alone

pytestmark = pytest.mark.torch

ITERATES_IN_WORKERS = """
from torch.utils.data import DataLoader, IterableDataset
import trainer_sdk as edl

class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        for batch in self.data:
            yield batch.indices

with edl.open() as session:
    data = session.dataset("d", size=100, epochs=2, batch_size=10, seed=3)
    for _ in DataLoader(Stream(data), batch_size=None, num_workers=2):
        pass
"""

WRITES = """
import warnings
import torch
import trainer_sdk as edl

warnings.simplefilter("error")
with edl.open() as session:
    for batch in session.dataset("d", size=20, epochs=1, batch_size=5):
        indices = torch.from_numpy(batch.indices)
        indices += 1000
        batch.done()
print("ended", session.has_ended)
"""


def test_workers_over_record_numbers_load_each_record_once_an_epoch(tmp_path):
    """The recipe of the guide: one round of the DataLoader is one batch, its pieces loaded by two workers (M1)."""
    done = run_alone(tmp_path, str(PROGRAMS / "torch_workers.py"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "counts {2}, workers {0, 1}, ended True"


def test_workers_over_the_data_set_are_told_to_take_record_numbers(tmp_path):
    """A session a worker would be a trainer a worker: the error names what a user of a DataLoader writes instead."""
    done = run_alone(tmp_path, "-c", ITERATES_IN_WORKERS)

    assert done.returncode != 0
    assert "used after fork()" in done.stderr
    assert "give each batch.indices to the workers, as batch_sampler of a DataLoader" in done.stderr


def test_torch_takes_the_indices_without_a_warning_and_may_write_to_them(tmp_path):
    """Of an array that is read-only it warns, with undefined behaviour."""
    done = run_alone(tmp_path, "-c", WRITES)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ended True"


GROUP_OF_ONE = """
import torch
import trainer_sdk as edl
import trainer_sdk.torch as edl_torch
from torch.utils.data import get_worker_info

class Records(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, record):
        return torch.randn(3), record, get_worker_info().id

if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counts, workers = [0] * 40, set()
    with edl.open() as session:
        edl_torch.replicate(session, model, optimizer)
        loader = edl_torch.loader(session, Records(), epochs=3, global_batch=8, micro_batch=4, num_workers=2)
        for epoch in loader.epochs():
            for x, records, loaded_by in loader:
                loader.backward(model(x).mean())
                optimizer.step()
                optimizer.zero_grad()
                workers |= set(loaded_by.tolist())
                for record in records.tolist():
                    counts[record] += 1
            total = loader.evaluate(Records(), lambda batch: {"sum": batch[1].sum()}, batch_size=7, num_workers=2)
        print(session.step, session.is_leader, session.world_size, set(counts), workers, total)
    print("ended", session.has_ended)
"""


def test_group_of_one_reads_and_evaluates_with_worker_processes(tmp_path):
    """`python script.py`: the same script alone, its records read by two workers, none of which outlives it."""
    script = tmp_path / "script.py"
    script.write_text(GROUP_OF_ONE)
    done = run_alone(tmp_path, str(script))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["15 True 1 {3} {0, 1} {'sum': 780.0}", "ended True"]
    assert "Error" not in done.stderr


def test_evaluation_with_workers_tells_a_script_without_a_main_guard(tmp_path):
    """Its workers run the script's top level: no second session opens there, and the error says why."""
    script = tmp_path / "script.py"
    head, body = GROUP_OF_ONE.split('if __name__ == "__main__":\n')
    script.write_text(head + "\n".join(line[4:] for line in body.splitlines()))
    done = run_alone(tmp_path, str(script))

    assert done.returncode != 0
    assert "evaluate(num_workers=2)" in done.stderr
    assert 'put what the script does under `if __name__ == "__main__":`' in done.stderr


def test_evaluation_with_workers_tells_what_cannot_be_sent_to_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(GROUP_OF_ONE.replace("batch_size=7,", "batch_size=7, collate_fn=lambda records: records,"))
    done = run_alone(tmp_path, str(script))

    assert done.returncode != 0
    assert (
        "UsageError: evaluate(num_workers=2): Records or collate_fn cannot be sent to worker processes" in done.stderr
    )


STREAM_WITH_WORKERS = """
import torch
import trainer_sdk as edl
import trainer_sdk.torch as edl_torch
from torch.utils.data import IterableDataset, get_worker_info

class Stream(IterableDataset):
    def __iter__(self):
        assert get_worker_info() is None  # else it would share its records out, as plain scripts do
        return iter([(torch.randn(3), record) for record in range(HAS)])

if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    order = []
    with edl.open() as session:
        edl_torch.replicate(session, model, optimizer)
        loader = edl_torch.loader(session, Stream(), size=20, epochs=2, global_batch=8, micro_batch=3, num_workers=2)
        for x, records in loader:
            loader.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
            order += records.tolist()
    print(order == [*range(20)] * 2, session.has_ended)
"""


def test_stream_is_read_in_its_order_by_worker_processes(tmp_path):
    """Each worker reads the stream and takes its micro-batches of it, whatever number of workers there is."""
    script = tmp_path / "script.py"
    script.write_text(STREAM_WITH_WORKERS.replace("HAS", "20"))
    done = run_alone(tmp_path, str(script))

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True True"


def test_stream_of_another_size_ends_the_script_with_its_name(tmp_path):
    """Read by a worker process, and told as the misuse that it is."""
    script = tmp_path / "script.py"
    script.write_text(STREAM_WITH_WORKERS.replace("HAS", "19"))
    done = run_alone(tmp_path, str(script))

    assert done.returncode != 0
    assert "UsageError: dataset: Stream ended after 19 records of epoch 0, and size is 20" in done.stderr
