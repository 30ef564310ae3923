"""Rules left out of the real cores, one at a time: each must be found, or the checker proves nothing.

A break is a patch that replaces one decision of a core while a small job is explored; the product has no switch for
any.  The names are those of the holes that the protocol's reference models list.  The cores' own checks are off and
marks are not compared with ledgers before a checkpoint: what finds a break is I1 to I9, or that END is out of reach.

What became of each hole of the models of moves: `listed`.  Of those of the other models, these have no place here:
those of the older commit in which trainers flush (`resume-early`, `wait-for-dead`, `wait-for-drained`, `zombie-push`),
of copies and windows that this commit does not have (`second-copy`, `window-both`), and of replicas in a group
(`own-models`, `no-sync`).  Tried and not found, because something else stands in front: `mixed-pull` (no grant before
all servers serve), `repeated-restore` and `cut-unchecked` (a stream keeps its order and a member has one), `ack-early`
and `stale-ack` (a cut forgets what it does not see), `commit-old-world` (only the owner is heard).  `shared-marks` and
`straddle-marked` need larger jobs than were explored.
"""

from __future__ import annotations

from typing import Final

from tests.protocol.breaks import copies, cuts, cuts_and_moves, keep, masters, pushes, replicas, tables

WITHOUT_MOVES: Final = (*pushes.BREAKS, *cuts.BREAKS, *masters.BREAKS)
OF_MOVES: Final = (*copies.BREAKS, *tables.BREAKS, *cuts_and_moves.BREAKS, *replicas.BREAKS)
BREAKS: Final = (*WITHOUT_MOVES, *OF_MOVES, *keep.BREAKS)
