"""The first page of the guide: its script runs as it stands, alone, and trains."""

import re
from pathlib import Path

import pytest

from tests.harness.lone_script import run_alone

pytestmark = pytest.mark.torch
PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"


def test_script_of_the_page_runs_and_trains(tmp_path):
    """Copied from the page, without a change."""
    script, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    done = run_alone(tmp_path, "train.py", cwd=tmp_path, PYTHONPATH=str(PAGE.parents[1]))

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    accuracy, trainers = re.fullmatch(r"epoch 9: (\S+) on (\d+) trainers", lines[-1]).groups()
    assert float(accuracy) > 0.9
    assert trainers == "1"
