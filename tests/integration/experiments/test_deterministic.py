"""The same pass in two processes is the same to the last digit, whatever the order of their sets."""

import json
import os
import subprocess
import sys

from tests.unit.experiments.test_result_store import SMALL

DEADLINE_S = 120.0


def kept_under(hash_seed, folder):
    """Every arm's pass of a small scenario, without how long it took."""
    scenario = folder / "small.yaml"
    scenario.write_text(json.dumps(SMALL))
    subprocess.run(
        [sys.executable, "-m", "experiments", "run", str(scenario), "--workers", "1", "--results", str(folder)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        timeout=DEADLINE_S,
    )
    files = sorted(folder.glob("passes/*/*/*.json"))
    return {file.name: {**json.loads(file.read_text()), "wall_s": 0} for file in files}


def test_no_result_hangs_on_the_hash_seed(tmp_path):
    """Four arms, two orders of hashing, equal metrics and curves."""
    kept = []
    for hash_seed in ("1", "77"):
        folder = tmp_path / hash_seed
        folder.mkdir()
        kept.append(kept_under(hash_seed, folder))
    assert len(kept[0]) == len(SMALL["arms"])
    assert kept[0] == kept[1]
