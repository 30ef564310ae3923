"""Errors of the test harness; every message says what to do.

HarnessError
├── ToolsMissingError     programs of the test cluster are not built yet
├── ToolsBuildError       they cannot be built
├── ImageBuildError       an image for the real nodes cannot be built
├── StartError            a program did not become ready; with the end of its log
├── ProgramError          a program of this machine failed; with its output
└── WaitTimeoutError        what a test waited for did not come
"""

from collections.abc import Sequence


class HarnessError(Exception):
    """Everything that the harness raises on purpose."""


class ToolsMissingError(HarnessError):
    def __init__(self, programs: list[str]) -> None:
        super().__init__(
            f"The test cluster needs {', '.join(programs)}. `make cluster-tools` builds what is missing, once, in about"
            " ten minutes; `make test QUICK=1` leaves the cluster's tests out."
        )


class ToolsBuildError(HarnessError):
    def __init__(self, what: str, output: str) -> None:
        super().__init__(
            f"{what}\n{output}\nThe modules come from the module proxy that `go env GOPROXY` names."
            " `make test QUICK=1` leaves the cluster's tests out."
        )


class ImageBuildError(HarnessError):
    pass


class StartError(HarnessError):
    pass


class ProgramError(HarnessError):
    def __init__(self, command: Sequence[str], code: int, output: str) -> None:
        super().__init__(f"{' '.join(command)}: code {code}: {output.strip()}")


class WaitTimeoutError(HarnessError):
    pass
