"""UID of the pod that a process belongs to, from its /proc/PID/cgroup.

::

    systemd   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
    cgroupfs  /kubepods/burstable/podUID/ID

With systemd the UID has _ for -.  Version 1 has a line for each controller, version 2 one line `0::PATH`, which is
relative to the reader's own group where that is a namespace (`/../../podUID/ID`).  A static pod's UID is 32 digits
without dashes.
"""

from __future__ import annotations

import re
from typing import Final

_POD: Final = re.compile(
    r"(?:^|[-/])pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?=/|$)"
)


def find_pod_uid(cgroup: str) -> str | None:
    """The UID in the text of /proc/PID/cgroup; None for a process of no pod, or where lines disagree.

    Of several in a path it is the outermost: below it a container may make groups of any name.
    """
    uids = set()
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        if found := _POD.search(path):
            uids.add(found["uid"].replace("_", "-"))
    return uids.pop() if len(uids) == 1 else None
