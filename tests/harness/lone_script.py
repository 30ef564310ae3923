"""Scripts that run alone, `python script.py`: without a cluster, their temporary files in the test's folder."""

import os
import subprocess
import sys

LIMIT_S = 250.0


def environment_alone(tmp_path, **more):
    """Of a script without a cluster."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
    return clean | {"TMPDIR": str(tmp_path)} | more


def run_alone(tmp_path, *command, cwd=None, **environment):
    """The finished process of a script without a cluster."""
    return subprocess.run(
        [sys.executable, *command],
        env=environment_alone(tmp_path, **environment),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=cwd,
    )
