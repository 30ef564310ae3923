"""The whole state of a PyTorch replica: model, optimisers, schedules, scaler, moving averages.

    replica = TorchReplica({"model": model, "optimizer": optimizer, "schedule": schedule})

It is `ReplicaState` of `group.port`: captured at a step boundary, carried to who lacks it, and put back in place, so
that references of the script, of a compiled model and of the optimisers stay right (rules 66, 71).  Encoding stands in
`state_encoding`, names of tensors in `module_names`, what is compared of a replica in `replica_layout`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Final, Protocol

import torch

from master.api.replica_layout import changed_settings
from trainer_sdk.errors import UsageError
from trainer_sdk.group.array_cuts import cut_rows
from trainer_sdk.group.port import CapturedShard, CapturedState
from trainer_sdk.replica_description import STATE_VERSION, own_name
from trainer_sdk.torch.module_names import load_state, state_of
from trainer_sdk.torch.replica_layout import describe_layout
from trainer_sdk.torch.state_encoding import StateDecoder, StateEncoder

_OTHER_SETTINGS: Final = (
    "edl: the state that was loaded is of a script with other settings: {}. What was loaded counts, as after torch's "
    "load_state_dict(); set in the loop what is to be another value from now on\n"
)


class StatefulPart(Protocol):
    """Common face of torch's modules, optimisers, schedules and scalers."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


class TorchReplica:
    """The replica that consists of these parts; the keys name them in messages and files.

    `layout` is taken once, as the script made the parts: a rank that joins later has made them alike, though its rate
    or its scale is not that of the others any more.  It is in each capture.

    Raises UsageError for a part whose state cannot travel.
    """

    def __init__(self, parts: Mapping[str, StatefulPart]) -> None:
        for name, part in parts.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise UsageError(f"{name}: {type(part).__name__} has no state_dict() and load_state_dict()")
        self._parts = dict(parts)
        self.layout: Final = describe_layout(parts)

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
        encoded = {name: encoder.encode(_state_of(part), name) for name, part in self._parts.items()}
        return json.dumps({"version": STATE_VERSION, "parts": encoded, "layout": self.layout}), encoder

    def restore(self, captured: CapturedState) -> None:
        """Puts the state back; tensors of modules keep their place.  Raises UsageError, and changes nothing, if it is
        no state of these parts; whatever else a part raises leaves the replica torn.

        Hyperparameters are those of the state; standard error tells which ones the script has made otherwise.
        """
        meta = self._checked_meta(captured)
        decoder = StateDecoder(captured.arrays, captured.dtypes)
        states = {name: decoder.decode(state) for name, state in meta["parts"].items()}
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                _check_module(part, states[name], name)
            elif isinstance(part, torch.optim.Optimizer):
                _check_groups(part, states[name], name)
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                load_state(part, states[name])
                continue
            part.load_state_dict(states[name])
            if isinstance(part, torch.optim.Optimizer):
                _keep_slots(part, states[name])
        self._tell_settings(meta.get("layout"))

    def _checked_meta(self, captured: CapturedState) -> dict[str, Any]:
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
        return meta

    def _tell_settings(self, layout: object) -> None:
        """Standard error tells hyperparameters of the script that the state of that layout has otherwise."""
        if not isinstance(layout, str):
            return  # a release before the layout was kept
        loaded = [name for name, part in self._parts.items() if not isinstance(part, torch.nn.Module)]
        texts = [text for name, text in changed_settings(self.layout, layout) if name.partition(".")[0] in loaded]
        if texts:
            sys.stderr.write(_OTHER_SETTINGS.format("; ".join(texts)))


def _state_of(part: StatefulPart) -> Any:
    return state_of(part) if isinstance(part, torch.nn.Module) else part.state_dict()


def _check_module(module: Any, state: Mapping[str, Any], part: str) -> None:
    mine = state_of(module)
    states = {own_name(key): value for key, value in state.items()}
    if different := sorted(mine.keys() ^ states.keys()):
        raise UsageError(
            f"{part}.{different[0]}: only one of state and model has it; run the same script on all trainers"
        )
    for name, held in mine.items():
        given = states[name]
        if isinstance(held, torch.Tensor) and (held.shape, held.dtype) != (given.shape, given.dtype):
            raise UsageError(
                f"{part}.{name}: {given.dtype} {tuple(given.shape)} in the state, {held.dtype} {tuple(held.shape)} in "
                "the model; run the same script on all trainers"
            )


def _check_groups(optimizer: Any, state: Mapping[str, Any], part: str) -> None:
    given = [len(group["params"]) for group in state["param_groups"]]
    mine = [len(group["params"]) for group in optimizer.param_groups]
    if given != mine:
        raise UsageError(
            f"{part}: its groups have {given} parameters in the state, and {mine} in this script; make them as the "
            "script did that the state is of"
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
