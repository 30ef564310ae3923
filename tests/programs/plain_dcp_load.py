"""A process that knows torch alone: `plain_dcp_load.py FOLDER OUT`, one a rank (RANK, WORLD_SIZE, MASTER_ADDR).

Loads a distributed checkpoint of a model and its Adam into DTensors cut by rows over all ranks, and writes the whole
tensors, as rank 0 has gathered them, by their names.
"""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def main(folder: str, out: str) -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.Linear(700, 900), torch.nn.Linear(900, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.zeros(1, 700)).sum().backward()
    optimizer.step()  # makes the slots

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return distribute_tensor(tensor, mesh, [Shard(0)]) if tensor.dim() else tensor

    states = {
        number: {key: cut(slot) for key, slot in slots.items()}
        for number, slots in optimizer.state_dict()["state"].items()
    }
    loaded = {
        "model": {name: cut(tensor) for name, tensor in model.state_dict().items()},
        "optimizer": {"state": states},
    }
    dcp.load(loaded, storage_reader=HuggingFaceStorageReader(folder))
    flat = dict(loaded["model"]) | {f"{n}.{key}": slot for n, slots in states.items() for key, slot in slots.items()}
    whole = {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in flat.items()}
    if dist.get_rank() == 0:
        torch.save(whole, out)
    dist.destroy_process_group()
    assert not {"trainer_sdk", "master"} & sys.modules.keys()


if __name__ == "__main__":
    main(*sys.argv[1:])
