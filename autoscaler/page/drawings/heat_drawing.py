"""Many nodes as a heat picture: for each node pool a field of cells, each coloured by what most of it is used for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.page.drawings.words import format_amount, format_count, name_unit
from autoscaler.views.cluster.cluster_picture import NodeView
from autoscaler.views.cluster.pod_view import NodeUnit, Use

MOST_CELLS: Final = 1_000
"""More nodes share cells, and a pool has one cell at least."""

MOST_POOLS: Final = 24
"""Pools that have a field of their own, the largest; the nodes of the rest are together."""

CELLS_A_ROW: Final = 40
_CELL: Final = 18.0
_HEAT_STEPS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """One node, or several, as a cell of the heat picture."""

    x: float
    y: float
    size: float
    style: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolField:
    """The cells of one pool.  `name`: empty for nodes of none; `pools`: so many pools are together in it."""

    name: str
    told: str  # `12 nodes, 40% of 96 GPUs in use`
    cells: tuple[HeatCell, ...]
    width: float
    height: float
    pools: int = 1


def nodes_to_a_cell(nodes: int) -> int:
    """Return how many of so many nodes share a cell."""
    return -(-nodes // MOST_CELLS) or 1


def draw_pools(nodes: Sequence[NodeView]) -> tuple[PoolField, ...]:
    """Return the fields, the largest pool first."""
    by_pool: dict[str, list[NodeView]] = {}
    for node in nodes:
        by_pool.setdefault(node.pool, []).append(node)
    ordered = sorted(by_pool.items(), key=lambda one: (-len(one[1]), one[0]))
    together = nodes_to_a_cell(len(nodes))
    fields = [_field(name, own, together) for name, own in ordered[:MOST_POOLS]]
    if rest := ordered[MOST_POOLS:]:
        fields.append(_field("", [node for _, own in rest for node in own], together, pools=len(rest)))
    return tuple(fields)


def _field(name: str, nodes: Sequence[NodeView], together: int, *, pools: int = 1) -> PoolField:
    groups = [nodes[at : at + together] for at in range(0, len(nodes), together)]
    rows = -(-len(groups) // CELLS_A_ROW)
    return PoolField(
        name=name,
        told=f"{format_count(len(nodes))} node{'s' if len(nodes) != 1 else ''}, {', '.join(_totals(nodes))}",
        cells=tuple(_cell(number, own) for number, own in enumerate(groups)),
        width=CELLS_A_ROW * _CELL,
        height=rows * _CELL,
        pools=pools,
    )


def _totals(nodes: Sequence[NodeView]) -> Iterable[str]:
    for unit in (NodeUnit.GPUS, NodeUnit.CORES):
        own = [node for node in nodes if node.unit is unit]
        capacity, used = sum(node.capacity for node in own), sum(node.used for node in own)
        if own:
            yield f"{used / (capacity or 1):.0%} of {format_amount(capacity)} {name_unit(unit, capacity)} in use"


def _cell(number: int, nodes: Sequence[NodeView]) -> HeatCell:
    row, column = divmod(number, CELLS_A_ROW)
    capacity = sum(node.capacity for node in nodes) or 1
    used = sum(node.used for node in nodes)
    amounts = dict.fromkeys(Use, 0)
    for node in nodes:
        for use, amount in node.by_use:
            amounts[use] += amount
    heat = min(_HEAT_STEPS, -(-used * _HEAT_STEPS // capacity))
    leading = max(amounts, key=lambda use: amounts[use]) if used else Use.FREE
    return HeatCell(
        x=column * _CELL,
        y=row * _CELL,
        size=_CELL - 2,
        style=f"use-{leading.value} heat-{heat}",
        title=", ".join([_names(nodes), f"{used / capacity:.0%} in use", *_told(amounts, capacity)]),
    )


def _told(amounts: Mapping[Use, int], capacity: int) -> Iterable[str]:
    return (f"{use.value} {amount / capacity:.0%}" for use, amount in amounts.items() if amount)


def _names(nodes: Sequence[NodeView]) -> str:
    return nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} to {nodes[-1].name}"
