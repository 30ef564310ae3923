"""What no planner can exceed: exact for one instant of an experiment, and a linear one for clusters of any size.

`patterns` and `filling` answer for whole pods on given rooms (the bounds *pinned* and *free*), `relaxed` bounds a whole
`ClusterView` from above, `configured` does so with whole pods on every node, `optimum` solves small views exactly.  All
are proved by the solver; none plans anything.
"""

from experiments.bounds.configured import pattern_bound
from experiments.bounds.demands import Worth
from experiments.bounds.filling import Filling, PackingItem, fill
from experiments.bounds.optimum import best_whole
from experiments.bounds.relaxed import upper_bound

__all__ = ["Filling", "PackingItem", "Worth", "best_whole", "fill", "pattern_bound", "upper_bound"]
