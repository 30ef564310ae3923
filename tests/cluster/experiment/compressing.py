"""A scenario in a fraction of its time: to see that everything works, not to measure.

Only the scenario's own instants move; pods start and leave, and policies wait, as long as ever.
"""

from __future__ import annotations

from typing import Any

from experiments.scenarios.schema import Scenario


def compress(scenario: Scenario, times: int) -> Scenario:
    """The scenario that many times as fast, under a name that shows it; it was never published."""
    document: dict[str, Any] = scenario.model_dump(exclude_unset=True)
    for field in ("until_s", "measured_until_s"):
        document[field] /= times
    for jobs in document["jobs"]:
        jobs.update({field: jobs[field] / times for field in ("first_s", "every_s") if field in jobs})
    for web in document.get("web", ()):
        web["steps"] = tuple(step | {"at_s": step["at_s"] / times} for step in web.get("steps", ()))
    document.update(name=f"{scenario.name}-by-{times}", clocks={}, variants=(), node_events=())
    return Scenario.model_validate(document)
