"""The cluster as a picture: a column for each node with a block for each pod; many nodes are cells (`heat_drawing`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.page.drawings.heat_drawing import CELLS_A_ROW, PoolField, draw_pools, nodes_to_a_cell
from autoscaler.page.drawings.words import format_amount, name_unit, shortened
from autoscaler.views.cluster.cluster_picture import ClusterPicture, Holding, NodeView
from autoscaler.views.cluster.pod_view import NodeUnit, PodView, Use, amount_in

MOST_COLUMNS: Final = 64
"""More nodes are drawn as cells."""

MOST_BLOCKS: Final = 1_500
"""Pods that are drawn, each as a link of its own: nodes with more are drawn as cells too."""

WIDTH: Final = 100.0
HEIGHT: Final = 160.0
_LABEL_HEIGHT: Final = 13.0  # of a block that has room for its name
_LABEL_LENGTH: Final = 15
_BAR_WIDTH: Final = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A rectangle of one pod, or of free capacity.  `style`: its classes in the stylesheet."""

    x: float
    y: float
    width: float
    height: float
    style: str
    label: str
    pod: PodView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeColumn:
    """One node's column; `marks` are the heights of whole cores or GPUs."""

    node: NodeView
    blocks: tuple[Block, ...]
    marks: tuple[float, ...]
    amounts: str  # `3/4 cores`


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDrawing:
    """Columns for few nodes, fields of cells for many.

    `cell_nodes`: so many nodes share a cell; `cells_a_row`: so many cells stand in a row.
    """

    columns: tuple[NodeColumn, ...] = ()
    pools: tuple[PoolField, ...] = ()
    cell_nodes: int = 1
    cells_a_row: int = CELLS_A_ROW


def draw_cluster(picture: ClusterPicture, colours: Mapping[str, int]) -> ClusterDrawing:
    """Return the drawing of all nodes."""
    if len(picture.nodes) <= MOST_COLUMNS and sum(len(node.pods) for node in picture.nodes) <= MOST_BLOCKS:
        return ClusterDrawing(columns=tuple(_column(node, colours, picture) for node in picture.nodes))
    return ClusterDrawing(pools=draw_pools(picture.nodes), cell_nodes=nodes_to_a_cell(len(picture.nodes)))


def draw_bars(
    holdings: Sequence[Holding], capacity: Iterable[tuple[NodeUnit, int]]
) -> Sequence[tuple[NodeUnit, tuple[Block, ...]]]:
    """Return a bar for each unit."""
    return [(unit, draw_bar(holdings, unit, amount)) for unit, amount in capacity]


def draw_bar(holdings: Sequence[Holding], unit: NodeUnit, capacity: int) -> tuple[Block, ...]:
    """Return one bar with a block for each owner, as wide as what it has of the capacity of all nodes."""
    own = [one for one in holdings if one.unit is unit]
    total = max(sum(one.amount for one in own), capacity) or 1
    blocks, at = [], 0.0
    for one in own:
        width = one.amount / total * _BAR_WIDTH
        name = one.owner.partition("/")[2] or one.owner or one.use.value
        label = shortened(name, int(width / 9)) if width > 27 else ""
        blocks.append(Block(x=at, y=0, width=width, height=40, style=style_of(one.use, one.colour), label=label))
        at += width
    return tuple(blocks)


def style_of(use: Use, colour: int | None) -> str:
    """Return the classes of something that is used so: a job's colour counts for its core and its surplus."""
    return f"use-{use.value}" if colour is None else f"use-{use.value} job-{colour}"


def _column(node: NodeView, colours: Mapping[str, int], picture: ClusterPicture) -> NodeColumn:
    capacity = max(node.capacity, node.used, 1)
    blocks: list[Block] = []
    at = HEIGHT
    for pod in node.pods:
        amount = amount_in(node.unit, pod.requests)
        height = amount / capacity * HEIGHT
        if not height:
            continue
        at -= height
        colour = colours.get(pod.owner) if pod.use in {Use.CORE, Use.SURPLUS} else None
        style = style_of(pod.use, colour) + (" leaving" if pod.is_leaving else "" if pod.is_ready else " starting")
        label = pod_label(pod) if height >= _LABEL_HEIGHT else ""
        blocks.append(
            Block(x=0, y=round(at, 2), width=WIDTH, height=round(height, 2), style=style, label=label, pod=pod)
        )
    if node.free and (node.is_open or not picture.is_complete):
        use = Use.FREE if picture.is_complete else Use.HIDDEN
        height = node.free / capacity * HEIGHT
        label = ("free" if picture.is_complete else "not shown") if height >= _LABEL_HEIGHT else ""
        blocks.append(Block(x=0, y=0, width=WIDTH, height=round(height, 2), style=style_of(use, None), label=label))
    whole = range(1, capacity // 1000 + 1) if capacity <= 64_000 else range(0)
    return NodeColumn(
        node=node,
        blocks=tuple(blocks),
        marks=tuple(round(HEIGHT - one * 1000 / capacity * HEIGHT, 2) for one in whole),
        amounts=f"{format_amount(node.used)}/{format_amount(node.capacity)} {name_unit(node.unit, node.capacity)}",
    )


def pod_label(pod: PodView) -> str:
    """Short name of a pod in its block: its job's or Deployment's, and which one of it."""
    name = pod.owner.partition("/")[2] or pod.name
    suffix = {"trainer": f" {pod.ordinal}", "server": f" s{pod.ordinal}", "master": " m"}.get(pod.role.value, "")
    return shortened(name, _LABEL_LENGTH - len(suffix)) + suffix
