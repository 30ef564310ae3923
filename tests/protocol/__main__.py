"""`python -m tests.protocol`: explore the protocol for longer than a test may, or show what one configuration does.

python -m tests.protocol                       2,000,000 states in all, then breaks that take long (make check-protocol)
python -m tests.protocol --config servers      one configuration and the trace of what is wrong (group-kill: of groups)
python -m tests.protocol --breaks              leave out one rule at a time: a table of what finds it
python -m tests.protocol --listed              the holes of the reference models, for docs/protocol-moves.md
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Final

from tests.protocol.breaks import BREAKS, listed
from tests.protocol.breaks.left_out import Break, is_found
from tests.protocol.configs import CONFIGS
from tests.protocol.explore import Limits, Report, Verdict, explore
from tests.protocol.group import breaks as group_breaks
from tests.protocol.group import configs as group_configs
from tests.protocol.group.breaks.left_out import GroupBreak, forget
from tests.protocol.group.model import GroupModel
from tests.protocol.haste import explore_job

GROUPS: Final = {f"group-{name}": setting for name, setting in group_configs.CONFIGS.items()}
NAMES: Final = (*CONFIGS, *GROUPS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol", description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=2_000_000, help="in all; small configurations end before")
    parser.add_argument("--seconds", type=float, default=1_800, help="for one configuration")
    parser.add_argument("--config", choices=NAMES, action="append", help="only this one; may be repeated")
    parser.add_argument("--breaks", action="store_true", help="leave out rules instead")
    parser.add_argument("--listed", action="store_true", help="print which holes of the reference models are found")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.listed:
        say("\n".join(listed.rows(BREAKS)))
        return 0
    if args.breaks:
        return show_breaks(BREAKS, args.workers) | show_breaks(group_breaks.BREAKS, args.workers)
    names = args.config or list(NAMES)
    states, bad = 0, 0
    for name, report in explored(names, args.states, args.seconds, args.workers):
        say(f"{name:24} {report}")
        states += report.states
        bad += report.verdict not in (Verdict.OK, Verdict.CUT_OFF)
    say(f"{states:,} states in {len(names)} configurations, {bad} with something wrong")
    if not args.config:
        for breaks in (BREAKS, group_breaks.BREAKS):
            bad += show_breaks([one for one in breaks if one.is_long], args.workers)
    return 1 if bad else 0


def explored(names: list[str], states: int, seconds: float, workers: int) -> Iterator[tuple[str, Report]]:
    """What configurations do not need of their share goes to those after them."""
    waiting, spent = list(names), 0
    running: dict[Future[Report], tuple[str, int]] = {}
    with ProcessPoolExecutor(max_workers=workers) as pool:
        while waiting or running:
            while waiting and len(running) < workers:
                promised = sum(share for _, share in running.values())
                share = max(1, (states - spent - promised) // len(waiting))
                name = waiting.pop(0)
                running[pool.submit(explore_one, name, share, seconds)] = (name, share)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                name, _ = running.pop(future)
                report = future.result()
                spent += report.states
                yield name, report


def explore_one(name: str, states: int, seconds: float) -> Report:
    limits = Limits(states=states, seconds=seconds)
    if name in CONFIGS:
        return explore_job(CONFIGS[name], limits)
    report = explore(GroupModel(GROUPS[name]), limits)
    forget()
    return report


def show_breaks(breaks: Sequence[Break] | Sequence[GroupBreak], workers: int) -> int:
    """1 when one of them is not found."""
    found = 0
    say(f"{'left out':26} {'found':9} {'states':>9} {'seconds':>8}  rule; what was seen")
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for one, report in zip(breaks, pool.map(explore_break, [(type(one), one.name) for one in breaks]), strict=True):
            found += is_found(report)
            seen = report.detail if is_found(report) else ""
            say(f"{one.name:26} {report.verdict:9} {report.states:>9,} {report.seconds:>8.1f}  {one.rule}; {seen}")
    say(f"{found} of {len(breaks)} found")
    return 0 if found == len(breaks) else 1


def explore_break(named: tuple[type, str]) -> Report:
    """By kind and name: what a break patches with cannot travel to another process."""
    return next(one for one in (*BREAKS, *group_breaks.BREAKS) if (type(one), one.name) == named).explore()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
