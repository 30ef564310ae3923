"""What can go wrong with the test cluster; every message says what to do.

ClusterError
├── ToolsMissingError     its programs are not built yet
├── ToolsBuildError       they cannot be built
├── StartError            a program did not become ready; with the end of its log
└── NotInTimeError        what a test waited for did not come
"""


class ClusterError(Exception):
    """Everything that this package raises on purpose."""


class ToolsMissingError(ClusterError):
    def __init__(self, programs: list[str]) -> None:
        super().__init__(
            f"The test cluster needs {', '.join(programs)}. `make cluster-tools` builds what is missing, once, in about"
            " ten minutes; `make test QUICK=1` leaves the cluster's tests out."
        )


class ToolsBuildError(ClusterError):
    def __init__(self, what: str, output: str) -> None:
        super().__init__(
            f"{what}\n{output}\nThe modules come from the module proxy that `go env GOPROXY` names."
            " `make test QUICK=1` leaves the cluster's tests out."
        )


class StartError(ClusterError):
    pass


class NotInTimeError(ClusterError):
    pass
