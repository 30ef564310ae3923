"""Replica of what a script trains: the state that travels, gradients and buffers of each step, the gate.

    model, optimizer, schedule = replicate(session, model, optimizer, schedule)

The objects are those that the script made, changed in place, so its own references stay right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, Final

import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.replica_description import own_name
from trainer_sdk.session import Session
from trainer_sdk.torch.gradient_buckets import GradientBuckets
from trainer_sdk.torch.model_buffers import ModelBuffers
from trainer_sdk.torch.module_names import parameter_names, state_of
from trainer_sdk.torch.replica_state import StatefulPart, TorchReplica
from trainer_sdk.torch.step_gate import StepGate, check_schedules
from trainer_sdk.torch.tensor_digest import digest_tensors

_WRAPPERS: Final = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
_SHARDED: Final = frozenset({"FullyShardedDataParallel", "FSDPModule", "DTensor"})
"""Classes of torch.distributed, by name: importing them takes more than a second."""
_NOTHING: Final = ("not there", 0)


class TrainingReplica(TorchReplica):
    """A replica that takes part in the steps of a group.

    Raises UsageError, naming the part, for what cannot train in a group.
    """

    def __init__(self, parts: Mapping[str, StatefulPart]) -> None:
        super().__init__(parts)
        modules = {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}
        optimizers = {name: part for name, part in parts.items() if isinstance(part, torch.optim.Optimizer)}
        _check_kinds(modules, optimizers)
        schedules = tuple(part for name, part in parts.items() if name not in modules and name not in optimizers)
        for optimizer in optimizers.values():
            check_schedules(optimizer, schedules)
        stepped = {id(parameter) for optimizer in optimizers.values() for parameter in _parameters_of(optimizer)}
        self.modules: Final = tuple(modules.values())
        trained = [  # but not averages of these
            module for module in self.modules if any(id(parameter) in stepped for parameter in module.parameters())
        ]
        _check_norms(modules, trained)
        self.buckets: Final = GradientBuckets(parameter for module in trained for parameter in module.parameters())
        self.buffers: Final = ModelBuffers(*trained)
        self._synced: Final = frozenset(name for name, module in modules.items() if module in trained)
        self.gate: Final = StepGate(self.buckets)
        for part in parts.values():
            self.gate.guard(part, is_average=_is_average(part, self.modules, trained))
        self._optimizers: Final = optimizers
        self._stepped = [parameter for optimizer in optimizers.values() for parameter in _parameters_of(optimizer)]
        self._summed: Final = {id(parameter) for module in trained for parameter in module.parameters()}
        self._given: Final = {name: _described(module) for name, module in modules.items() if module in trained}
        self._is_checked = False

    def check_parameters(self) -> None:
        """Raises UsageError for a parameter of no bucket, or of another kind than it had, since `replicate`.

        Those of the model are looked at in the first step alone: a script changes a model before it trains it, and a
        look at all of them in each step costs time.
        """
        if not self._is_checked:
            self._check_given()
            self._is_checked = True
        now = [parameter for optimizer in self._optimizers.values() for parameter in _parameters_of(optimizer)]
        if len(now) == len(self._stepped) and all(map(is_, now, self._stepped)):
            return
        for name, optimizer in self._optimizers.items():
            if any(id(parameter) not in self._summed for parameter in _parameters_of(optimizer)):
                raise UsageError(
                    f"{name}: trains a parameter that the model did not have when it was given to replicate(), so the "
                    "group does not sum its gradients; make all layers before, frozen ones too"
                )
        self._stepped = now

    def _check_given(self) -> None:
        """Raises UsageError, by its name, for a parameter that is not the one that was given to `replicate`."""
        for name, before in self._given.items():
            now = _described(self._parts[name])
            for key in (*before, *now):
                was, what = before.get(key, _NOTHING), now.get(key, _NOTHING)
                if was != what:
                    told = "another parameter" if was[0] == what[0] else what[0]
                    raise UsageError(
                        f"{name}.{key}: was {was[0]} when it was given to replicate(), and is {told} now; give the "
                        "model its layers, dtype and device before, and make the optimizer of them"
                    )

    def digests(self) -> Mapping[str, int]:
        """Of parameters, of buffers of what is trained, and of optimizers' slots: tensors that only a step changes.

        Not of the extra state that a module adds to these, which nothing agrees on: it may be of its process.
        Not of rates and schedules, which a script may have set for the step in hand at some trainers and not yet at
        others; where they differ, the parameters do with the next step.  Nor of parts of the script's own.
        """
        tensors: dict[str, Any] = {}
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                same = {key for key, _ in parameter_names(part, remove_duplicate=False)}
                if name in self._synced:
                    same |= {own_name(key) for key, _ in part.named_buffers(remove_duplicate=False)}
                tensors.update({f"{name}.{key}": one for key, one in state_of(part).items() if key in same})
            elif isinstance(part, torch.optim.Optimizer):
                tensors.update(_slots(part, name))
        return digest_tensors({key: one for key, one in tensors.items() if isinstance(one, torch.Tensor)})


def _described(module: Any) -> dict[str, tuple[str, int]]:
    """Of each parameter what a gradient has to fit, and which object it is."""
    return {key: (f"{one.dtype} {tuple(one.shape)} on {one.device}", id(one)) for key, one in parameter_names(module)}


def _slots(optimizer: Any, name: str) -> dict[str, Any]:
    """Tensors of its state, by name: the parameters are numbered in the order of its groups."""
    numbered = optimizer.state_dict()["state"].items()
    return {f"{name}.{number}.{key}": slot for number, slots in numbered for key, slot in slots.items()}


def replicate(session: Session, *parts: Any, **named: Any) -> Any:
    """Declares that every trainer of this job holds these, and returns those without a name, one or a tuple.

    Give all that the next step depends on, as the script made it: model, optimizers, learning-rate schedules, scaler,
    moving averages, and whatever else has `state_dict()` and `load_state_dict()`.  Weights may be loaded before.
    A trainer that joins takes all of it from another one; checkpoints hold it.  From then on optimizers, schedules,
    scalers and averages advance once for each step of the group, however often the loop calls them.

    Raises UsageError, naming the part, for what cannot travel or train in a group.  After it: `loader`.
    """
    unnamed = _names(parts)
    if same := unnamed.keys() & named.keys():
        name = min(same)
        raise UsageError(
            f"replicate(): {name} is the name of two parts, one of them given without a name; call the other "
            f"otherwise, as in second_{name}=..., or give both without a name"
        )
    replica = TrainingReplica({**unnamed, **named})
    session.replicate(replica)
    return parts[0] if len(parts) == 1 else parts


def _names(parts: tuple[Any, ...]) -> dict[str, Any]:
    """Names by kind: "model", "optimizer", "schedule", and "model-2" for the second of its kind."""
    names: dict[str, Any] = {}
    for part in parts:
        kind = _kind(part)
        number = 1 + sum(name.split("-")[0] == kind for name in names)
        names[kind if number == 1 else f"{kind}-{number}"] = part
    return names


def _kind(part: Any) -> str:
    match part:
        case torch.optim.swa_utils.AveragedModel():
            return "average"
        case torch.nn.Module():
            return "model"
        case torch.optim.Optimizer():
            return "optimizer"
        case torch.optim.lr_scheduler.LRScheduler():
            return "schedule"
        case torch.amp.GradScaler():
            return "scaler"
        case _:
            return type(part).__name__.lower()


def _check_kinds(modules: Mapping[str, Any], optimizers: Mapping[str, Any]) -> None:
    if not modules or not optimizers:
        raise UsageError(
            "replicate(): give the model and its optimizer, model, optimizer = replicate(session, model, optimizer)"
        )
    for name, module in modules.items():
        if isinstance(module, _WRAPPERS):
            raise UsageError(
                f"{name}: is wrapped in {type(module).__name__}; give the module within, EDL sums its gradients"
            )
        if kind := _sharding_of(module):
            raise UsageError(
                f"{name}: is sharded over ranks of torch.distributed ({kind}); in a group every trainer holds the "
                "whole model: leave FSDP, fully_shard and tensor parallelism out, and give the plain module"
            )
    held = {id(parameter) for module in modules.values() for parameter in module.parameters()}
    for name, optimizer in optimizers.items():
        if any(id(parameter) not in held for parameter in _parameters_of(optimizer)):
            raise UsageError(
                f"{name}: trains a parameter that is in no module given to replicate(); give that module too, and make "
                "the optimizer of the parameters of the module as it is now"
            )


def _sharding_of(module: Any) -> str:
    """Name of the class by which some layer or parameter is a shard; empty: none is."""
    kinds = {type(one) for one in (*module.modules(), *module.parameters())}
    bases = {base for kind in kinds for base in kind.__mro__ if base.__module__.startswith("torch.distributed")}
    return min((base.__name__ for base in bases if base.__name__ in _SHARDED), default="")


def _check_norms(modules: Mapping[str, Any], trained: Sequence[Any]) -> None:
    for name, module in modules.items():
        for path, layer in module.named_modules():
            if isinstance(layer, torch.nn.SyncBatchNorm) and (module in trained or layer.training):
                raise UsageError(
                    f"{name}.{path}: is SyncBatchNorm, which normalises over the ranks of torch.distributed, and here "
                    "would do so over this trainer's micro-batch without a word; leave convert_sync_batchnorm out and "
                    "raise micro_batch, or use GroupNorm; a module that is not trained, call eval() of it before"
                )


def _holds_another(module: Any, modules: Iterable[Any]) -> bool:
    """True for an average that has the averaged model within, whose parameters an optimizer trains."""
    within = {id(one) for one in module.modules()} - {id(module)}
    return any(id(other) in within for other in modules)


def _is_average(part: Any, modules: Sequence[Any], trained: Sequence[Any]) -> bool:
    """True for a module that has another of them within, or tensors for those of a trained one, or of a layer of it.

    The latter only if no optimizer trains it: either a copy, told by names and shapes; or, under names of its own, all
    the shapes of a model's parameters.
    """
    if not isinstance(part, torch.nn.Module):
        return False
    if _holds_another(part, modules):
        return True
    if any(part is module for module in trained):
        return False
    held = Counter(one.shape for one in (*part.parameters(), *part.buffers()))
    if any(Counter(one.shape for one in module.parameters()) <= held for module in trained):
        return True
    kinds = [_shapes(layer) for module in trained for layer in module.modules()]
    return any(_shapes(layer) in kinds for layer in part.modules() if next(layer.parameters(), None) is not None)


def _shapes(module: Any) -> dict[str, Any]:
    return {name: one.shape for name, one in (*module.named_parameters(), *module.named_buffers())}


def _parameters_of(optimizer: Any) -> Iterator[Any]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])
