"""A script whose records are loaded by the worker processes of a torch DataLoader, as docs/guide.md shows it."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

import trainer_sdk as edl

WORKERS = 2


class Records(Dataset):
    """Record i is its number, and the worker that loaded it."""

    def __getitem__(self, index):
        return torch.tensor(int(index)), get_worker_info().id


class Pieces:
    """The records of one batch, a piece for each worker."""

    indices = ()

    def __iter__(self):
        return iter(np.array_split(self.indices, WORKERS)) if len(self.indices) else iter(())


def main() -> None:
    pieces = Pieces()
    loader = DataLoader(Records(), batch_sampler=pieces, num_workers=WORKERS, persistent_workers=True)
    with edl.open() as session:
        data = session.dataset("d", size=100, epochs=2, batch_size=10, seed=3)
        list(loader)  # starts the workers, before the session has threads
        counts, workers = np.zeros(100, dtype=np.int64), set()
        for batch in data:
            pieces.indices = batch.indices
            for records, loaded_by in loader:
                counts[records.numpy()] += 1
                workers |= set(loaded_by.tolist())
            batch.done()
        print(f"counts {set(counts.tolist())}, workers {workers}, ended {session.has_ended}")


if __name__ == "__main__":
    main()
