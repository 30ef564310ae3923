"""The chart's page is made of values.yaml."""

import subprocess
import sys


def test_the_page_of_values_is_fresh():
    done = subprocess.run(
        [sys.executable, "tools/chart_readme.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
