"""The figures that docs/what-others-do.md quotes are those of the newest `make bench`, and name its commit."""

import json
import re

import pytest

from tests.documentation.shown import ROOT

PAGE = (ROOT / "docs" / "what-others-do.md").read_text(encoding="utf-8")
ROWS = json.loads((ROOT / "docs" / "reports" / "benchmarks.json").read_text(encoding="utf-8"))
PARTS = {"torch": "EDL, groups", "exactness": "Data, lost or repeated", "goodput": "Goodput"}
"""The section that quotes each benchmark."""

QUOTED = {
    "pause of those that stay, join": "{:.0f} ms (",
    "pause of those that stay, drain": "{:.0f} ms (",
    "pause of those that stay, SIGKILL": "{:.0f} ms (",
    "2 ranks, 10 M parameters: time beside DDP on gloo": "takes {:.2f} to",
    "4 ranks, 10 M parameters: time beside DDP on gloo": "to {:.2f} of the time",
    "1 rank, 10 M parameters: time beside plain torch": "and {:.2f}, ",
    "1 rank, 1 M parameters: time beside plain torch": ", {:.2f} and",
    "1 rank, 0.1 M parameters: time beside plain torch": "and {:.2f} of plain torch",
    "records one by one: time beside plain torch": "; {:.2f} where",
    "EDL: lost": "| **{:.0f}** |",
    "torchrun: lost": "| {:.0f} of epoch 1 |",
    "SIGKILL of one every 30 s, starts aside": "made {:.1%} of",
    "goodput, 256 ranks, simulated, SIGKILL of one every 30 s": "simulated ones {:.1%}.",
}
"""The end of a figure's name, and how the page writes its value."""


def section(title):
    return " ".join(re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0].split())


@pytest.mark.parametrize("bench", PARTS)
def test_a_section_names_the_commit_of_its_figures(bench):
    """So that nobody takes the figures of an older commit for those of the report."""
    (commit,) = {row["commit"] for row in ROWS if row["bench"] == bench}
    assert f"`{commit}`" in section(PARTS[bench])


@pytest.mark.parametrize("name", QUOTED)
def test_a_quoted_figure_is_the_reports(name):
    """Rounded as the page rounds it."""
    (row,) = [row for row in ROWS if row["bench"] in PARTS and row["name"].endswith(name)]
    assert QUOTED[name].format(row["value"]).replace("%", " %") in section(PARTS[row["bench"]])
