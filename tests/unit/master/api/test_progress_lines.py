"""Long work tells how far it is."""

from master.api.host.progress_lines import ProgressLines


def test_long_work_is_told_on_its_way(capsys):
    """A line every two seconds on standard error; short work prints none."""
    clock = iter([0.0, 1.9, 2.0, 3.0])
    progress = ProgressLines("read", clock=lambda: next(clock))
    for done in (10, 25, 30):
        progress(done, 100)
    assert capsys.readouterr().err == "read 25 of 100 bytes (25 %)\n"
