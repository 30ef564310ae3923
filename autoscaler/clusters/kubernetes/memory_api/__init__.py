"""An API server in memory; `tests/unit/clusters/kubernetes/api/contract` holds it to what a real one does.

`memory_server` stores objects and `memory_client` is the `Api` on it.  `object_rules` validates and fills in defaults,
`field_ownership` is server-side apply, `watch_history` serves watches, `garbage_collection` deletes dependents.
"""

from autoscaler.clusters.kubernetes.memory_api.garbage_collection import collect
from autoscaler.clusters.kubernetes.memory_api.memory_client import MemoryApi
from autoscaler.clusters.kubernetes.memory_api.memory_server import Admission, MemoryServer, ScalePaths

__all__ = ["Admission", "MemoryApi", "MemoryServer", "ScalePaths", "collect"]
