"""Amounts, shapes and lists of names as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from autoscaler.domain import Resources, Role, Shape

UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def describe(resources: Resources) -> str:
    """Resources as text (`cpu 500m, memory 2Gi, gpu 1`), without `pods`; `nothing` if empty."""
    amounts = ((name, amount) for name, amount in resources.amounts() if name != "pods")
    return ", ".join(f"{name} {describe_amount(name, amount)}" for name, amount in amounts) or "nothing"


def describe_shape(shape: Shape) -> str:
    """A pod's requests and its node selector as text: `cpu 5 on nodes with disk=fast`."""
    labels = ", ".join(f"{key}={value}" for key, value in sorted(shape.node_selector))
    terms = [f"{requirement.key} {requirement.operator}" for term in shape.node_terms for requirement in term]
    wanted = [f" with {labels}" if labels else "", f" whose affinity requires {', '.join(terms)}" if terms else ""]
    return describe(shape.requests) + (f" on nodes{' and'.join(filter(None, wanted))}" if any(wanted) else "")


def describe_deficit(requests: Resources, free: Resources) -> tuple[str, str]:
    """Return the requests that exceed what is free, and what is free of them: (`1 cpu, 2Gi memory`, `500m, 1Gi`)."""
    lacks = [(name, amount, free.amount(name)) for name, amount in requests.amounts() if amount > free.amount(name)]
    needed = ", ".join(f"{describe_amount(name, amount)} {name}" for name, amount, _ in lacks)
    return needed, ", ".join(describe_amount(name, had) if had > 0 else "none" for name, _, had in lacks)


def describe_amount(name: str, amount: int) -> str:
    """Return one amount; memory rounded down to a tenth of its unit."""
    if name == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if name == "memory":
        for unit, size in UNITS:
            if abs(amount) >= size:
                return f"{amount * 10 // size / 10:g}{unit}"
    return str(amount)


def counted(roles: Iterable[Role]) -> str:
    """Return roles as text such as `2 trainers and 1 server`."""
    counts = Counter(roles)
    parts = [
        f"{counts[role]} {role}{'s' if counts[role] > 1 else ''}"
        for role in (Role.TRAINER, Role.SERVER, Role.MASTER)
        if counts[role]
    ]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def listed(names: Sequence[str]) -> str:
    """Return the first two names and how many more there are."""
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
