"""The whole state of a PyTorch replica: model, optimisers, schedules, scaler, moving averages.

    replica = TorchReplica({"model": model, "optimizer": optimizer, "schedule": schedule})

It is `ReplicaState` of `group.port`: captured at a step boundary, carried to who lacks it, and put back in place, so
that references of the script, of a compiled model and of the optimisers stay right (rules 66, 71).  Encoding stands in
`state_encoding`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
import torch

from trainer_sdk.errors import UsageError
from trainer_sdk.group.array_cuts import cut_rows
from trainer_sdk.group.port import CapturedShard, CapturedState
from trainer_sdk.torch.state_encoding import StateDecoder, StateEncoder

STATE_VERSION: Final = 1


class StatefulPart(Protocol):
    """Common face of torch's modules, optimisers, schedules and scalers."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


class TorchReplica:
    """The replica that consists of these parts; the keys name them in messages and files.

    `layout` has a digest of each part, so that a refusal can name the part that differs.  It is taken once, as the
    script made the parts: a rank that joins later has made them alike, though its rate or its scale is not that of the
    others any more.  It names the kind of accelerator, since two kinds round differently.

    Raises UsageError for a part whose state cannot travel.
    """

    def __init__(self, parts: Mapping[str, StatefulPart]) -> None:
        for name, part in parts.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise UsageError(f"{name}: {type(part).__name__} has no state_dict() and load_state_dict()")
        self._parts = dict(parts)
        self.layout: Final = self._layout()

    def capture(self) -> CapturedState:
        """A copy of all parts in host memory; tensors that several names share are in it once."""
        meta, encoder = self._encoded()
        arrays = {name: encoder.copied(name) for name in encoder.shapes}
        return CapturedState(arrays=arrays, meta=meta, dtypes=encoder.dtypes)

    def replica_bytes(self) -> int:
        """Bytes of all tensors; those that an optimizer makes in its first step are not there before."""
        return sum(one.nbytes for one in self._encoded()[1].shapes.values())

    def capture_shard(self, shard: int, shards: int) -> CapturedShard:
        """A copy of this part in host memory; nothing else is copied (rule 84)."""
        meta, encoder = self._encoded()
        rows = cut_rows(encoder.shapes, shard, shards)
        return CapturedShard(
            shard=shard,
            shards=shards,
            arrays=encoder.shapes,
            rows=rows,
            pieces={name: encoder.copied(name, part) for name, part in rows.items()},
            meta=meta if shard == 0 else "",
            dtypes=encoder.dtypes,
        )

    def _encoded(self) -> tuple[str, StateEncoder]:
        """The replica's description, and its tensors, not copied yet."""
        encoder = StateEncoder()
        encoded = {name: encoder.encode(part.state_dict(), name) for name, part in self._parts.items()}
        return json.dumps({"version": STATE_VERSION, "parts": encoded}), encoder

    def restore(self, captured: CapturedState) -> None:
        """Puts the state back; tensors of modules keep their place.  Raises UsageError, and changes nothing, if it is
        no state of these parts; whatever else a part raises leaves the replica torn.
        """
        states = self._decoded(captured)
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                _check_module(part, states[name], name)
        for name, part in self._parts.items():
            part.load_state_dict(states[name])
            if isinstance(part, torch.optim.Optimizer):
                _keep_slots(part, states[name])

    def _decoded(self, captured: CapturedState) -> dict[str, Any]:
        try:
            meta = json.loads(captured.meta)
        except ValueError as error:
            raise UsageError(f"state: its description is no JSON ({error})") from error
        if not isinstance(meta, dict) or meta.get("version") != STATE_VERSION:
            raise UsageError(f"state: is not of version {STATE_VERSION}; run the same release on all trainers")
        parts = meta.get("parts")
        if not isinstance(parts, dict) or parts.keys() != self._parts.keys():
            held = sorted(parts) if isinstance(parts, dict) else parts
            raise UsageError(f"state: holds {held!r:.200}, this script replicates {sorted(self._parts)}")
        decoder = StateDecoder(captured.arrays, captured.dtypes)
        return {name: decoder.decode(state) for name, state in parts.items()}

    def _layout(self) -> str:
        parts = [f"{name}={_layout_of(part, name)}" for name, part in self._parts.items()]
        modules = [part for part in self._parts.values() if isinstance(part, torch.nn.Module)]
        devices = {parameter.device.type for module in modules for parameter in module.parameters()} - {"cpu"}
        return " ".join(parts + [f"device={device}" for device in sorted(devices)])


def _layout_of(part: StatefulPart, name: str) -> str:
    encoder = StateEncoder()
    encoded = encoder.encode(_as_made(part, name), name)
    shapes = {path: [str(np.dtype(one.dtype)), *one.shape] for path, one in encoder.shapes.items()}
    kind = f"{type(part).__module__}.{type(part).__qualname__}"
    text = json.dumps([STATE_VERSION, kind, encoded, shapes, encoder.dtypes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_made(part: StatefulPart, name: str) -> Any:
    """State that must be equal on every rank before training: names and hyperparameters, not the values of tensors."""
    if isinstance(part, torch.nn.Module):
        trained = [name for name, parameter in part.named_parameters() if parameter.requires_grad]
        return {"state": part.state_dict(), "trained": trained}
    if isinstance(part, torch.optim.Optimizer):
        return part.state_dict()["param_groups"]  # slots come with the first step
    if not isinstance(part, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
        StateEncoder().encode(part.state_dict(), name)  # refused now, if at all
        return None  # of the script's own: its values may be anything
    return part.state_dict()


def _check_module(module: Any, state: Mapping[str, Any], part: str) -> None:
    mine = module.state_dict()
    if different := sorted(mine.keys() ^ state.keys()):
        raise UsageError(
            f"{part}.{different[0]}: only one of state and model has it; run the same script on all trainers"
        )
    for name, held in mine.items():
        given = state[name]
        if isinstance(held, torch.Tensor) and (held.shape, held.dtype) != (given.shape, given.dtype):
            raise UsageError(
                f"{part}.{name}: {given.dtype} {tuple(given.shape)} in the state, {held.dtype} {tuple(held.shape)} in "
                "the model; run the same script on all trainers"
            )


def _keep_slots(optimizer: Any, state: Mapping[str, Any]) -> None:
    """Gives slots the dtype that they had, for torch casts them to that of their parameter as it loads, and strides.

    Slots of a parameter's shape get its strides, as torch makes them: fused optimizers go through the memory of both
    side by side.
    """
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        slots = optimizer.state.get(parameter, {})
        for key, held in state["state"].get(number, {}).items():
            if isinstance(held, torch.Tensor) and slots[key].dtype != held.dtype:
                slots[key] = held.to(slots[key].device)
            if isinstance(held, torch.Tensor) and held.shape == parameter.shape:
                slots[key] = _with_strides_of(parameter, slots[key])


def _with_strides_of(parameter: Any, slot: Any) -> Any:
    strides = torch.empty_like(parameter, device="meta").stride()
    return slot if slot.stride() == strides else torch.empty_like(parameter, dtype=slot.dtype).copy_(slot)
