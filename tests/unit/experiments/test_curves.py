"""The published curves are read whole, or refused with the line and the column."""

import pytest

from experiments.errors import RefusedInputError
from experiments.published.curves import CURVES, find_curves, read_curves
from experiments.published.published_numbers import read_figures


@pytest.fixture
def harmed(tmp_path):
    """Write the published file with one change."""

    def write(change):
        file = tmp_path / "curves.csv"
        file.write_text(change(CURVES.read_text(encoding="utf-8")), encoding="utf-8")
        return file

    return write


def test_the_published_curves_are_ten_passes_of_four_arms():
    """Two cases, on and off, 0 to 550 s; case 2's mean is what was published, within half a point."""
    curves = read_curves()
    assert [(c.case, c.is_autoscaled) for c in curves] == [
        ("case1", True),
        ("case1", False),
        ("case2", True),
        ("case2", False),
    ]
    band = find_curves(curves, "case2", is_autoscaled=True).bands["cpu_request_utilisation_percent"]
    assert band.time_s[0] == 0
    assert band.time_s[-1] == 550
    assert band.mean_until(550.0) == pytest.approx(83.42, abs=0.5)


def test_a_missing_file_is_refused_with_its_path(tmp_path):
    """Nothing is drawn over curves that are not there."""
    with pytest.raises(RefusedInputError, match=r"none\.csv: the published curves cannot be read"):
        read_curves(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda text: text.replace("nginx_running_max", "nginx", 1), "line 1, nginx_running_max"),
        (lambda text: text.replace("nginx_running_max", "nginx_running_max,more", 1), "line 1, more"),
        (lambda text: text.replace("15.14", "about 15", 1), "line 3, cpu_request_utilisation_percent_mean"),
        (lambda text: text.replace("15.14", "nan", 1), "line 3, cpu_request_utilisation_percent_mean"),
        (lambda text: text.replace("15.14", "1.14", 1), "line 3, cpu_request_utilisation_percent_mean"),
        (lambda text: text.replace("15.14", "-1", 1), "line 3, cpu_request_utilisation_percent_mean"),
        (lambda text: text.replace("case1,on,20,", "case1,on,5,", 1), "line 4, time_s"),
        (lambda text: text.replace("case1,on,20,", "case3,on,20,", 1), "line 4, case"),
        (lambda text: text.replace("case1,on,20,", "case1,on,20,7,", 1), "line 4"),
        (lambda text: text.split("\n", 1)[0], "line 2"),
    ],
)
def test_a_garbled_file_is_refused_with_line_and_column(harmed, change, path):
    """A shifted column would look like a finding."""
    with pytest.raises(RefusedInputError) as refused:
        read_curves(harmed(change))
    assert refused.value.path == path


def test_published_figures_name_the_quantity_that_is_wrong(tmp_path):
    """The path of the field stands in the refusal."""
    file = tmp_path / "figures.json"
    file.write_text('{"case1": {"on": {"jain_index": {"published": "0.4", "recomputed": null}}}}')
    with pytest.raises(RefusedInputError, match=r"case1\.on\.jain_index\.published"):
        read_figures(file)


def test_what_2017_measured_of_the_web_is_there():
    """The figures that everything is compared with."""
    assert read_figures()["case2", "on", "web_rise_s"].recomputed == 124
