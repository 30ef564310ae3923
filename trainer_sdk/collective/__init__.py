"""All-reduce on host memory for groups whose members come and go: every member ends with the same bits, or aborts.

The problem: a library's all-reduce waits for its own time-out when a member is gone, or stopped, and encrypts and
authenticates nothing.  Here every operation of a group can be aborted at once, from any thread and by any member; after
that the group is unusable, and the next generation connects another (rules 73 to 82 of the collective protocol).

From the numbers to the process; each module imports only what stands above it:

- `sums`: element types, and sums of arrays; pure.
- `flows`: bytes to and from several members at once, with a deadline.
- `ring`: all-reduce of a large array around a ring.
- `host_collective`: the operations of one group.
- `rendezvous`: connections of other members, until this process joins the same group.
- `collective_listener`: one per process; connects groups.

Not here: who is a member, and what follows an abort.
"""

from trainer_sdk.collective.collective_listener import CollectiveListener
from trainer_sdk.collective.host_collective import HostCollective
from trainer_sdk.collective.rendezvous import Peer
from trainer_sdk.errors import CollectiveAborted

__all__ = ["CollectiveAborted", "CollectiveListener", "HostCollective", "Peer"]
