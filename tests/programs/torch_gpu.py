"""A CNN in mixed precision, compiled, in a group on this machine's GPUs: `torch_gpu.py FOLDER MASTER ORDINAL`.

As `torch_group.py`, with what scripts for GPUs have: convolutions, autocast to float16, a gradient scaler,
torch.compile, pinned memory.  Without a GPU it runs on the CPU, where it is tried before it meets one.
"""

import json
import sys
import time
from pathlib import Path

import torch

import trainer_sdk.torch as edl_torch
from tests.programs.group_counter import LONG, PAUSE_S, variables_of
from trainer_sdk.session import open_session


class Records(torch.utils.data.Dataset):
    """Record i: its number and an image of it."""

    def __len__(self) -> int:
        return LONG.size

    def __getitem__(self, record: int) -> tuple[torch.Tensor, int]:
        return torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(record)), record


class Network(torch.nn.Sequential):
    """Two convolutions with batch normalisation."""

    def __init__(self) -> None:
        nn = torch.nn
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 9, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
        )


class Counting(torch.nn.Module):
    """The network beside a parameter that counts how often each record was trained."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()
        self.counts = torch.nn.Parameter(torch.zeros(LONG.size, dtype=torch.float64))


def main(folder: Path, master: str, ordinal: int) -> None:
    torch.set_num_threads(1)
    device = edl_torch.device()
    model = Counting().to(device)
    backend = "aot_eager" if device.type == "cpu" else "inductor"  # no C++ compiler runs for minutes where it is tried
    network = torch.compile(model.network, dynamic=True, backend=backend)  # its parameters are those of the model
    parts = [
        {"params": model.network.parameters(), "lr": 1e-3, "momentum": 0.9},
        {"params": [model.counts], "lr": float(LONG.batch_size)},
    ]
    optimizer = torch.optim.SGD(parts)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda step: 0.999**step, lambda step: 1.0])
    scaler = torch.amp.GradScaler(device.type, init_scale=256.0, growth_interval=10**6)  # no step may be skipped here
    with open_session(variables_of(folder, master, ordinal)) as session:
        edl_torch.replicate(session, model, optimizer, schedule, scaler)
        loader = edl_torch.loader(
            session,
            Records(),
            epochs=LONG.epochs,
            global_batch=LONG.batch_size,
            micro_batch=4,
            seed=LONG.seed,
            name=LONG.name,
            pin_memory=device.type != "cpu",
        )
        evaluated = []
        for _ in loader.epochs():
            for images, numbers in loader:
                if not (folder / "hurry").exists():
                    time.sleep(PAUSE_S)
                x, records = images.to(device, non_blocking=True), numbers.to(device, non_blocking=True)
                with torch.autocast(device.type, dtype=torch.float16):
                    scores = network(x)
                loss = scores.float().pow(2).mean() * 1e-3 - model.counts[records].mean()
                loader.backward(scaler.scale(loss))
                if loader.has_stepped:  # its rate is a whole batch, and the last step of an epoch has less
                    is_last = loader.step % len(loader) == 0
                    model.counts.grad *= LONG.size % LONG.batch_size / LONG.batch_size if is_last else 1
                scaler.step(optimizer)
                scaler.update()
                schedule.step()
                optimizer.zero_grad()
            evaluated.append(loader.evaluate(Records(), lambda batch: {"n": len(batch[1])}, batch_size=9)["n"])
        result = {
            "reason": "ended" if session.has_ended else "drained",
            "counts": model.counts.detach().round().long().tolist(),
            "weights": model.network[0].weight.detach().cpu().numpy().tobytes().hex(),
            "buffers": [value.tolist() for value in model.buffers()],
            "step": session.step,
            "redone": 0,
            "evaluated": sorted(set(evaluated)),
            "advanced": schedule.last_epoch,
            "device": str(device),
            "scale": scaler.get_scale(),
        }
        (folder / f"trainer-{ordinal}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
