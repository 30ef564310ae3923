"""Many nodes are drawn by pool: each where its provider's label says, the largest pool first, none left out."""

import pytest

from autoscaler.page.drawings import heat_drawing
from autoscaler.page.drawings.cluster_drawing import MOST_COLUMNS, draw_cluster
from autoscaler.page.drawings.heat_drawing import MOST_CELLS, MOST_POOLS
from autoscaler.views.cluster.cluster_picture import cluster_picture
from autoscaler.views.cluster.node_pools import POOL_LABELS, pool_of
from autoscaler.views.documents import ClusterDocuments
from tests.harness.page_cluster import NOW_S, node, pod

GKE, TYPE = "cloud.google.com/gke-nodepool", "node.kubernetes.io/instance-type"


def drawn(nodes, pods=()):
    picture = cluster_picture(ClusterDocuments(now_s=NOW_S, nodes=tuple(nodes), pods=tuple(pods)))
    return draw_cluster(picture, {})


@pytest.mark.parametrize("label", POOL_LABELS)
def test_a_pool_is_known_by_its_provider_s_label(label):
    assert pool_of(node("n", labels={label: "a100"})) == "a100"


def test_the_provider_s_pool_comes_before_the_type_of_machine():
    assert pool_of(node("n", labels={TYPE: "m5", GKE: "web"})) == "web"
    assert pool_of(node("n")) == ""


def test_each_pool_has_a_field_of_its_own_that_tells_its_use():
    gpus = [node(f"g-{n:03}", gpus=8, labels={GKE: "a100"}) for n in range(30)]
    cores = [node(f"c-{n:03}", labels={GKE: "web"}) for n in range(MOST_COLUMNS)]
    pods = [pod(f"x-{n}", on=f"g-{n:03}", job="x", gpus=8) for n in range(15)]
    drawing = drawn([*gpus, *cores, node("odd")], pods)
    assert [(field.name, field.told) for field in drawing.pools] == [
        ("web", "64 nodes, 0% of 256 cores in use"),
        ("a100", "30 nodes, 50% of 240 GPUs in use"),
        ("", "1 node, 0% of 4 cores in use"),
    ]
    assert [len(field.cells) for field in drawing.pools] == [64, 30, 1]


def test_of_many_pools_the_smaller_ones_are_together_and_every_node_has_a_cell():
    nodes = [node(f"n-{at:05}", labels={GKE: f"pool-{at % 100}"}) for at in range(3 * MOST_CELLS)]
    drawing = drawn(nodes)
    assert len(drawing.pools) == MOST_POOLS + 1
    assert drawing.pools[-1].pools == 100 - MOST_POOLS
    assert drawing.cell_nodes == 3
    cells = [cell for field in drawing.pools for cell in field.cells]
    assert MOST_CELLS <= len(cells) <= MOST_CELLS + MOST_POOLS + 1
    for field in drawing.pools:
        assert {(cell.x, cell.y) for cell in field.cells} == {
            (number % 40 * 18.0, number // 40 * 18.0) for number in range(len(field.cells))
        }
        assert max(cell.y for cell in field.cells) < field.height


def test_one_pool_is_one_field():
    assert len(drawn([node(f"n-{at}") for at in range(100)]).pools) == 1
    assert heat_drawing.draw_pools(()) == ()
