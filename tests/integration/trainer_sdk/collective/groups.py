"""Groups whose members are threads of this process: their listeners, and one call at all of them at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from trainer_sdk.collective import CollectiveListener, Peer
from trainer_sdk.errors import CollectiveAborted, UsageError
from trainer_sdk.transport.security import Security

PATIENCE_S = 60.0


class Members:
    """Listeners of some processes, and the groups that they connected."""

    def __init__(self, size, listen="", security=None):
        security = security or Security()
        self.listeners = [CollectiveListener(listen, security, f"process-{rank}") for rank in range(size)]
        self.peers = [Peer(f"process-{rank}", one.address) for rank, one in enumerate(self.listeners)]
        self.groups = []

    def connect(self, key="1-1", *, budget_s=PATIENCE_S, idle_s=PATIENCE_S):
        """One group of all of them, by rank."""

        def one(rank):
            return self.listeners[rank].connect(
                key=key, rank=rank, members=self.peers, budget_s=budget_s, idle_s=idle_s
            )

        groups = at_all(range(len(self.peers)), one)
        self.groups += groups
        return groups

    def close(self):
        for group in self.groups:
            group.close()
        for listener in self.listeners:
            listener.close()


def at_all(members, call):
    """What `call` returns for each member, all at once."""
    members = list(members)
    with ThreadPoolExecutor(len(members)) as pool:
        return [one.result(PATIENCE_S) for one in [pool.submit(call, member) for member in members]]


class Blocked:
    """A call in a thread of its own, which is expected to fail."""

    def __init__(self, call):
        self.error = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call):
        try:
            call()
        except (CollectiveAborted, UsageError) as error:
            self.error = error

    def wait(self):
        """The error that ended it."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.error is not None, "the call was not aborted"
        return str(self.error)


def close_all(groups):
    for group in groups:
        with suppress(CollectiveAborted):
            group.close()
