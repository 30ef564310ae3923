"""What dashboards rest on is there: metrics, variables, links, places on the grid.  Without Prometheus and helm.

Whether each expression answers is asked of a real Prometheus in `test_dashboards_scraped.py`.
"""

import itertools
import re

import pytest

from tests.chart.boards import BOARDS, FOLDER, panels, queries, variable_names, variables
from tests.chart.exported import exported, recorded
from tools.dashboards.__main__ import make_files
from tools.dashboards.panels import Panel, Query, _steps

UIDS = {"edl", "edl-job", "edl-gpus"}
BOARD = pytest.mark.parametrize("board", BOARDS)
MOST_BYTES = 900_000  # of a ConfigMap's 1 MiB
METRIC = re.compile(r"\b((?:verdict:|namespace:)?edl_\w+(?::sum)?)")


def test_the_files_are_what_the_descriptions_make():
    """`python -m tools.dashboards` writes them."""
    made = make_files()
    assert {path.name for path in made} == {path.name for path in FOLDER.iterdir()}
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name} is stale: python -m tools.dashboards"
    assert sum(map(len, made.values())) < MOST_BYTES


def test_uids_stay_as_they_are():
    """Links and bookmarks name them; the file has the same name."""
    assert {board["uid"] for board in BOARDS.values()} == set(BOARDS) == UIDS


def test_every_metric_is_one_that_edl_exports_or_records():
    """A panel of a metric that is gone stays empty, and looks like a quiet day."""
    known = exported() | recorded().keys()
    for query in queries():
        named = set(METRIC.findall(query.expr)) - {"edl_dev_job"}  # a label
        assert named, query
        assert named <= known, query


def test_every_recorded_expression_is_of_metrics_that_edl_exports():
    for name, expr in recorded().items():
        assert set(re.findall(r"\bedl_\w+", expr)) <= exported(), name


def test_every_recorded_metric_is_shown():
    """What nobody reads costs a series for nothing."""
    shown = " ".join(query.expr for query in queries())
    assert [name for name in recorded() if name not in shown] == []


@BOARD
def test_panels_lie_beside_one_another(board):
    """Within the grid's 24 columns; no two overlap; ids are unique."""
    taken = set()
    for panel in BOARDS[board]["panels"]:
        place = panel["gridPos"]
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert max(column for column, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in BOARDS[board]["panels"]]
    assert len(ids) == len(set(ids))


@BOARD
def test_every_panel_says_what_it_shows_and_takes_the_chosen_data_source(board):
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))
    for panel in panels(board):
        assert len(panel["description"]) > 30, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources), panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references)), panel["title"]


@BOARD
def test_thresholds_rise_and_begin_at_everything(board):
    """Grafana takes the last step whose value is reached; the first has none."""
    for panel in panels(board):
        first, *steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        values = [step["value"] for step in steps]
        assert first["value"] is None
        assert values == sorted(values), panel["title"]


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({}, [("green", None)]),
        ({"warn_at": 1, "alarm_at": 3}, [("green", None), ("orange", 1), ("red", 3)]),
        ({"alarm_at": 1, "is_low_bad": True}, [("red", None), ("green", 1)]),
        ({"warn_at": 0.7, "alarm_at": 0.5, "is_low_bad": True}, [("red", None), ("orange", 0.5), ("green", 0.7)]),
    ],
)
def test_colours_follow_what_is_bad(limits, steps):
    panel = Panel(title="t", description="d", queries=(Query(expr="e"),), **limits)
    assert [(step["color"], step["value"]) for step in _steps(panel)] == steps


@BOARD
def test_every_variable_that_is_used_is_offered(board):
    """And each one that is offered is used; the data source is one of them."""
    offered = {one["name"] for one in BOARDS[board]["templating"]["list"]}
    assert "datasource" in offered
    used = {name for query in queries() if query.board == board for name in variable_names(query.expr)}
    asked = {name for one in variables(board) for name in variable_names(one["definition"])}
    assert used | asked <= offered
    assert offered - {"datasource"} <= used


@BOARD
def test_links_to_a_job_name_its_variables(board):
    text = (FOLDER / f"{board}.json").read_text()
    names = {one["name"] for one in BOARDS["edl-job"]["templating"]["list"]}
    for uid, query in re.findall(r'"/d/([\w-]+)\?([^"]*)"', text):
        assert uid in UIDS
        assert set(re.findall(r"var-(\w+)=", query)) == names
    assert [link["tags"] for link in BOARDS[board]["links"]] == [BOARDS[board]["tags"]] == [["edl"]]
