"""PyTorch surface that makes a script elastic: `replicate` its model, take its records from `loader`.

    import trainer_sdk as edl
    import trainer_sdk.torch as edl_torch

    with edl.open() as session:
        model, optimizer, schedule = edl_torch.replicate(session, model, optimizer, schedule)
        loader = edl_torch.loader(session, train_set, epochs=10, global_batch=256, micro_batch=32, seed=7)
        for epoch in loader.epochs():
            for x, y in loader:
                loader.backward(F.cross_entropy(model(x), y))  # weights, accumulation, sums over the group
                optimizer.step()  # like clipping and the schedule: takes effect once for each step of the group
                schedule.step()
                optimizer.zero_grad()
            correct = loader.evaluate(test_set, lambda batch: {"correct": correct_in(model, batch)})["correct"]

The same script trains alone (`python script.py`) and in a group whose size changes meanwhile.  Nothing else of the SDK
imports torch: a script in NumPy runs without it.  Methods: `group_loader`; what is replicated: `training_replica`.
"""

from trainer_sdk.torch.group_loader import GroupLoader, loader
from trainer_sdk.torch.host_staging import device
from trainer_sdk.torch.training_replica import replicate

__all__ = ["GroupLoader", "device", "loader", "replicate"]
