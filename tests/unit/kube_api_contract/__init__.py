"""What every adapter of `Api` must do, as tests: subclass `KubeApiContract` and give it a fixture `stage`.

A stage is an API server with an empty namespace, two doors to it (`api` writes as `edl`, `other` as somebody else),
`shortest_s`, the shortest time that a watch can last, and `await stage.collect(probe)`, which lets garbage collection
work until `await probe()` is true.  `await stage.forgotten()` is a kind and a version that the server has forgotten.
"""

from tests.unit.kube_api_contract.applying import Applying
from tests.unit.kube_api_contract.changing import Changing
from tests.unit.kube_api_contract.leaving import Leaving
from tests.unit.kube_api_contract.pods import OfPods
from tests.unit.kube_api_contract.reading import Reading
from tests.unit.kube_api_contract.stage import Stage
from tests.unit.kube_api_contract.watching import Watching

__all__ = ["KubeApiContract", "Stage"]


class KubeApiContract(Reading, Changing, Applying, OfPods, Leaving, Watching):
    """All of it."""
