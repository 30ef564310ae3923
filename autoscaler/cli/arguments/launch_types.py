"""Parameter types of `edl launch`: ranges and lists of counts, variables, and virtual nodes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import click

from autoscaler.cli.arguments.launched_job import CountRange
from autoscaler.cli.arguments.parameter_types import NodeShape
from master.api.host.launch_variables import GIVEN

if TYPE_CHECKING:  # the domain is not for --help
    from autoscaler.domain import Resources

_RANGE: Final = re.compile(r"(?P<least>[0-9]{1,5})(:(?P<most>[0-9]{1,5}))?")
_SIZES: Final = re.compile(r"[0-9]{1,5}(,[0-9]{1,5})*")
_NODES: Final = re.compile(r"(?:(?P<count>[0-9]{1,4})x)?(?P<shape>.+)")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_NODES: Final = 1000


class Counts(click.ParamType[CountRange]):
    """`4`, or `1:8` for at least 1 and at most 8."""

    name = "min[:max]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> CountRange:
        if isinstance(value, CountRange):
            return value
        match = _RANGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a number or a range; write 4, or 1:8 for 1 to 8", param, ctx)
        least = int(match["least"])
        found = CountRange(least=least, most=int(match["most"] or least))
        if least < 1:
            advised = f"1:{found.most}" if found.most > 1 else "1"
            self.fail(f"{value!r}: at least 1 is needed; write {advised}", param, ctx)
        if found.most < least:
            self.fail(f"{value!r}: the maximum is below the minimum; write {found.most}:{least}", param, ctx)
        return found


class ListedSizes(click.ParamType["tuple[int, ...]"]):
    """`1,2,4,8`, as numbers from 1 up; that they rise is checked with the job."""

    name = "n,n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if not _SIZES.fullmatch(str(value)):
            self.fail(f"{value!r} is no list of numbers; write 1,2,4,8", param, ctx)
        found = tuple(map(int, str(value).split(",")))
        if 0 in found:  # the job's least number of trainers would be blamed, too
            rest = ",".join(str(size) for size in found if size)
            self.fail(f"{value!r}: a job has at least 1 trainer; write {rest or 1}", param, ctx)
        return found


class EnvironmentVariable(click.ParamType["tuple[str, str]"]):
    """`KEY=VALUE`, as (key, value); the value may be empty.  `KEY` alone takes the caller's value, as in docker run."""

    name = "key[=value]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not _VARIABLE.fullmatch(key):
            self.fail(f"{key!r} is not a variable's name; write LOG_LEVEL=debug", param, ctx)
        if key.startswith("EDL_"):
            self.fail(f"{key}: names with EDL_ are EDL's own; choose another name", param, ctx)
        if equals:
            return key, text
        found = os.environ.get(GIVEN + key, os.environ.get(key))
        if found is None:
            self.fail(f"{key} is not set in this environment; set it, or write {key}=VALUE", param, ctx)
        return key, found


class VirtualNodes(click.ParamType["tuple[int, Resources]"]):
    """`4x2cpu,8Gi,1gpu`: a number of virtual nodes and the shape of each; as (number, capacity)."""

    name = "[Nx]shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, Resources]:
        match = _NODES.fullmatch(str(value))
        count = int(match["count"] or 1) if match else 0
        if match is None or not 1 <= count <= MOST_NODES:
            self.fail(f"{value!r} is not 1 to {MOST_NODES} nodes; write 4x2cpu,8Gi", param, ctx)
        return count, NodeShape().convert(match["shape"], param, ctx)
