"""Upper bounds that no planner can exceed: exact ones for an instant of an experiment, a linear one for any cluster.

`whole_pod_patterns` and `filling` bound whole pods on given nodes (*pinned* and *free*), `relaxed` bounds a whole
`ClusterView`, `configured` does so with whole pods on every node, `optimum` solves small views exactly.  The solver
proves all of them; none plans anything.
"""

from experiments.bounds.configured import pattern_bound
from experiments.bounds.demands import Worth
from experiments.bounds.filling import Filling, PackingItem, fill
from experiments.bounds.optimum import best_whole
from experiments.bounds.relaxed import upper_bound

__all__ = ["Filling", "PackingItem", "Worth", "best_whole", "fill", "pattern_bound", "upper_bound"]
