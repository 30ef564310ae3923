"""Users with narrow rights on a real control plane: ServiceAccounts with a token of the API server's."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.control_plane import ControlPlane
from tests.harness.errors import HarnessError
from tests.harness.waiting import wait_for


def create_viewer(plane: ControlPlane, namespace: str, name: str, *, lists: Sequence[str] = ()) -> str:
    """Create a ServiceAccount that may list these resources in its namespace, and nothing else; return its token."""
    place = ("-n", namespace)
    plane.kubectl("create", "serviceaccount", name, *place)
    if lists:
        plane.kubectl("create", "role", name, *place, "--verb=list", f"--resource={','.join(lists)}")
        plane.kubectl("create", "rolebinding", name, *place, f"--role={name}", f"--serviceaccount={namespace}:{name}")
        wait_for("the rights", lambda: all(may_read(plane, namespace, name, one) for one in lists))
    return plane.kubectl("create", "token", name, *place).strip()


def may_read(plane: ControlPlane, namespace: str, name: str, resource: str, *, verb: str = "list") -> bool:
    """True if the ServiceAccount may list (or `verb`) the resource in its namespace."""
    kind, _, part = resource.partition("/")  # kubectl would take PART for an object's name
    user = f"--as=system:serviceaccount:{namespace}:{name}"
    try:
        return (
            plane.kubectl("auth", "can-i", verb, kind, f"--subresource={part}", "-n", namespace, user).strip() == "yes"
        )
    except HarnessError:  # kubectl's way to say no
        return False
