"""What can go wrong with the real nodes; every message says what to do.

ClusterError (tests.cluster)
└── RealNodeError
    ├── ImageBuildError       an image cannot be made
    └── CommandError          a program of this machine failed; with what it said
"""

from collections.abc import Sequence

from tests.harness.errors import ClusterError


class RealNodeError(ClusterError):
    """Everything that this package raises on purpose."""


class ImageBuildError(RealNodeError):
    pass


class CommandError(RealNodeError):
    def __init__(self, command: Sequence[str], code: int, output: str) -> None:
        super().__init__(f"{' '.join(command)}: code {code}: {output.strip()}")
