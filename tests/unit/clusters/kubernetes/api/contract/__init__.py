"""What every adapter of `Api` must do, as tests: subclass `KubeApiContract` and give it a fixture `stage`.

A stage is an API server with an empty namespace, two doors to it (`api` writes as `edl`, `other` as somebody else),
`shortest_s`, the shortest time that a watch can last, and `await stage.collect(probe)`, which lets garbage collection
work until `await probe()` is true.  `await stage.forgotten()` is a kind and a version that the server has forgotten.
`await stage.user(name, lists=kind)` is the token of a user who may list the kind in the namespace, and nothing else.
"""

from tests.unit.clusters.kubernetes.api.contract.applying import Applying
from tests.unit.clusters.kubernetes.api.contract.changing import Changing
from tests.unit.clusters.kubernetes.api.contract.leaving import Leaving
from tests.unit.clusters.kubernetes.api.contract.pods import OfPods
from tests.unit.clusters.kubernetes.api.contract.reading import Reading
from tests.unit.clusters.kubernetes.api.contract.reviewing import Reviewing
from tests.unit.clusters.kubernetes.api.contract.stage import Stage
from tests.unit.clusters.kubernetes.api.contract.watching import Watching

__all__ = ["KubeApiContract", "Stage"]


class KubeApiContract(Reading, Changing, Applying, OfPods, Leaving, Watching, Reviewing):
    """All of it."""
