"""Report of `edl what-if` for people: sizes now, and converged with and without the changes.  Pure."""

from __future__ import annotations

from autoscaler.cli.output.formats import section
from autoscaler.cli.output.object_tables import align_columns
from autoscaler.views.planning.what_if import WhatIfComparison, job_rows, server_rows, waiting_rows, web_rows


def comparison_lines(found: WhatIfComparison) -> list[str]:
    """Lines of the comparison: jobs and deployments before and after, then what would wait and why."""
    servers = [[f"{name} servers", *cells] for name, *cells in server_rows(found)]
    rows = [["NAME", "NOW", "BEFORE", "AFTER", "WHY"], *job_rows(found), *servers, *web_rows(found)]
    lines = [f"with {', '.join(found.changes)}:" if found.changes else "with nothing changed:", *align_columns(rows)]
    lines += section("would wait", align_columns(waiting_rows(found.after)), is_spaced=True)
    if not (found.before.is_reached and found.after.is_reached):
        lines += ["", "(not converged: the last plan still has actions)"]
    return lines
