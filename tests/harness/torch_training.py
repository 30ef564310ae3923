"""A PyTorch script as users write it, by parts: run by the members of a `ThreadGroup`, or plainly in one process."""

from collections.abc import Callable

import torch

from master.api.positions import PositionSet
from tests.harness.device_of_tests import device_of_tests
from tests.harness.thread_group import ThreadSession, run_threads
from trainer_sdk import torch as edl_torch
from trainer_sdk.record_order import RecordOrder

nn = torch.nn
DEVICE = device_of_tests()


class Records(torch.utils.data.Dataset):
    """Points and classes as a function of the record number; `read` notes who was read, in which order."""

    def __init__(self, size=24, *, has_noise=False):
        self.x = torch.randn(size, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self.y = torch.randint(3, (size,), generator=torch.Generator().manual_seed(2))
        self.has_noise = has_noise
        self.read = []

    def __len__(self):
        return len(self.y)

    def __getitem__(self, record):
        self.read.append(record)
        noise = torch.randn(6, dtype=torch.float64) if self.has_noise else 0
        return self.x[record] + noise, self.y[record]


class Numbers(nn.Module):
    """A network with what travels with difficulty: buffers, a frozen layer."""

    def __init__(self, dropout=0.0, *, has_norm=True):
        super().__init__()
        self.first = nn.Linear(6, 9, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(9, dtype=torch.float64) if has_norm else nn.Identity()
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(9, 3, dtype=torch.float64)
        self.last.bias.requires_grad_(False)

    def forward(self, x):
        return self.last(self.drop(torch.tanh(self.norm(self.first(x)))))


class Script:
    """What a script makes, and its loop; every rank but the first makes other weights, which it must not keep."""

    def __init__(self, rank=0, **options):
        torch.default_generator.manual_seed(rank)  # threads share it: nothing else is drawn while ranks are made
        model = Numbers(**options)
        self.average = torch.optim.swa_utils.AveragedModel(model).to(DEVICE)
        self.model = model.to(DEVICE)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=0.05, eps=1e-3)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.losses = []

    def replicate(self, session):
        edl_torch.replicate(session, self.model, self.optimizer, self.schedule, self.average)

    def round(self, loader, x, y):
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        loss = nn.functional.cross_entropy(self.model(x), y)
        loader.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.update()
        self.losses.append(loss.item())

    def update(self):
        self.optimizer.step()
        self.schedule.step()
        self.average.update_parameters(self.model)
        self.optimizer.zero_grad()

    def state(self):
        """All numbers of the replica, by name."""
        slots = self.optimizer.state_dict()["state"]
        return {
            **{f"model.{name}": value.clone() for name, value in self.model.state_dict().items()},
            **{f"average.{name}": value.clone() for name, value in self.average.state_dict().items()},
            **{f"slot.{number}.{name}": value.clone() for number, of in slots.items() for name, value in of.items()},
            "rate": torch.tensor(self.schedule.get_last_lr()),
            "advanced": torch.tensor(self.schedule.last_epoch),
        }


def train_group(group, loop, *, dataset=None, make=Script, micro_batch=None, **options):
    """Runs `loop(script, loader, session)` at every rank; the scripts, by rank.

    The ranks' objects are made one after the other, and with the same weights as a plain script only at rank 0.
    """
    scripts = [make(rank) for rank in range(group.most)]
    for script in scripts:
        script.dataset = Records(group.dataset.size) if dataset is None else dataset
        if isinstance(dataset, Callable):  # one for each rank
            script.dataset = dataset()

    def run(rank):
        script, session = scripts[rank], ThreadSession(group, rank)
        script.session = session
        try:
            script.replicate(session)
            loader = edl_torch.loader(
                session,
                script.dataset,
                epochs=group.dataset.epochs,
                global_batch=group.dataset.batch_size,
                micro_batch=micro_batch,
                seed=group.dataset.seed,
                **options,
            )
            loop(script, loader, session)
        finally:
            session.close()

    run_threads(group.most, run)
    return scripts


def whole_loop(script, loader, session):
    """All epochs at once."""
    for x, y in loader:
        script.round(loader, x, y)


def assert_same_bits(states):
    for name, value in states[0].items():
        for other in states[1:]:
            assert torch.equal(value, other[name]), name


def assert_close(state, other):
    assert state.keys() == other.keys()
    for name, value in state.items():
        torch.testing.assert_close(
            value, other[name], rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name} {text}"
        )


def plain(dataset, *, per_epoch=None, **options):
    """A plain script on the global batches, in the order of the job: no line of EDL."""
    script, records, order = Script(**options), Records(dataset.size), RecordOrder(dataset)
    for epoch in range(dataset.epochs):
        for begin in range(0, dataset.size, dataset.batch_size):
            end = min(begin + dataset.batch_size, dataset.size)
            positions = PositionSet.span(epoch * dataset.size + begin, epoch * dataset.size + end)
            chosen = order.records(positions)
            x, y = records.x[chosen].to(DEVICE), records.y[chosen].to(DEVICE)
            loss = torch.nn.functional.cross_entropy(script.model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(script.model.parameters(), 0.5)
            script.update()
        if per_epoch:
            per_epoch(script)
    return script


class Same(Script):
    """All ranks begin with the same weights, as from one seed or one file."""

    def __init__(self, rank, **options):
        super().__init__(0, **options)


class WithoutNorm(Same):
    """Batch normalisation makes the loss depend on the division into micro-batches, as in DDP."""

    def __init__(self, rank):
        super().__init__(rank, has_norm=False)
