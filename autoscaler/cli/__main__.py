"""`python -m autoscaler.cli`: the command `edl` of this interpreter, also where no script folder is on PATH."""

from __future__ import annotations

from autoscaler.cli.main import main

if __name__ == "__main__":
    main()
