"""HTML out of views: the templates, and the filters that show times, amounts and the names of others in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from autoscaler.page.drawings.words import (
    format_amount,
    format_count,
    format_placement,
    name_unit,
    plain,
    shortened,
)
from autoscaler.quantities import format_cpu, format_memory
from autoscaler.views.jobs.remaining_time import format_remaining
from autoscaler.views.jobs.reported_metrics import format_metric
from autoscaler.views.phrases import format_age, format_ago

LIVE: str = "live"
"""The block of a template that is replaced when something has changed."""

_FIRST_S: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST_S: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


@cache
def environment() -> Environment:
    """Return the templates of the page: every value is escaped, and a missing one is an error."""
    made = Environment(
        loader=PackageLoader("autoscaler.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    made.filters |= {
        "age": format_age,
        "ago": format_ago,
        "remaining": format_remaining,
        "instant": to_instant,
        "clock": to_clock,
        "short": shortened,
        "thousands": format_count,
        "amount": format_amount,
        "unit_of": name_unit,
        "placement": format_placement,
        "cpu": format_cpu,
        "memory": format_memory,
        "metric": format_metric,
    }
    return made


def compile_templates() -> None:
    """Compile every template of the page, which the first viewer would wait for."""
    for name in environment().list_templates():
        _template(name)


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Return the whole page."""
    return _template(template).render(values)


def render_live(template: str, values: Mapping[str, Any]) -> str:
    """Return its live part alone, below what keeps it from being current."""
    found = _template(template)
    context = found.new_context(dict(values))
    told = _macros().not_current(values["problem"], values["is_current"], values["now_s"])
    return "".join((told, *found.blocks[LIVE](context)))


def render_notice(text: str) -> str:
    """Return a live part that says this alone."""
    return f'<p class="notice" role="status">{escape(plain(text.strip()))}</p>'


def to_instant(at_s: float) -> str:
    """An instant for the attribute `datetime`; one beyond the years 1 to 9999 as the nearest in them."""
    within_s = min(max(at_s, _FIRST_S), _LAST_S)  # with its zone an annotation's instant may lie in the year 10000
    return datetime.fromtimestamp(within_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_clock(at_s: float) -> str:
    """An instant for people, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


@cache
def _macros() -> Any:
    return _template("macros.html").module


def _template(name: str) -> Template:
    return environment().get_template(name)


def _shown(value: Any) -> Any:
    """Escape control and direction characters of everything that a template writes; markup stays markup."""
    return plain(value) if type(value) is str else value
