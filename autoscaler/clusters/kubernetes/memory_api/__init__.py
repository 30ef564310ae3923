"""An API server in memory, with the semantics of a real one: `server` holds the objects, `door` is the port.

`rules` is what the server checks and fills in, `ownership` server-side apply, `history` watches, `collecting` what
controllers do afterwards.
"""

from autoscaler.clusters.kubernetes.memory_api.garbage_collection import collect
from autoscaler.clusters.kubernetes.memory_api.memory_client import MemoryApi
from autoscaler.clusters.kubernetes.memory_api.memory_server import Admission, MemoryServer, ScalePaths

__all__ = ["Admission", "MemoryApi", "MemoryServer", "ScalePaths", "collect"]
