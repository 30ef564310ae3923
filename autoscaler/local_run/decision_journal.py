"""Decisions and writes of the planner's passes, written to the journal of a run.

`decisions.jsonl` has all of them.  A decision that changes a size is an event of the run as well, each time that it is
taken: the operator's events of one reason and one message are a series, of which only the first is an object.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from autoscaler.cluster_port import WriteOutcome
from autoscaler.clusters.kubernetes.objects.names import split_key
from autoscaler.clusters.local.run_files.run_journal import DECIDED, RunJournal
from autoscaler.domain import Action
from autoscaler.fault_isolation import GuardedTask, JobErrors
from autoscaler.loop import JournalEntry, Loop, LoopPass
from autoscaler.operator.status.status_inputs import deserves_event


class DecisionJournal:
    """Writes what each pass decided and did; a decision that stands is written once."""

    def __init__(self, journal: RunJournal, loop: Loop, errors: JobErrors) -> None:
        self._journal = journal
        self._loop = loop
        self._errors = errors
        self._last: JournalEntry | None = None

    def record_pass(self, done: LoopPass) -> None:
        """Write one pass (`LeaderTerm.on_pass`)."""
        for action, outcome in done.applied:
            self._errors.attempt(action.job, GuardedTask.REPORT_WRITES, partial(self._record_write, action, outcome))
        for entry in self._new_entries():
            self._errors.attempt(entry.decision.job, GuardedTask.REPORT, partial(self._record_decision, entry))

    def _record_write(self, action: Action, outcome: WriteOutcome) -> None:
        line = {"action": type(action).__name__, **asdict(action), "verdict": outcome.result}
        self._journal.record_decision(line | ({"message": outcome.message} if outcome.message else {}))

    def _record_decision(self, entry: JournalEntry) -> None:
        decision = entry.decision
        self._journal.record_decision({"decision": decision.reason, **asdict(decision)})
        if deserves_event(decision):
            _, name = split_key(decision.job)
            self._journal.record_event(DECIDED, f"tj/{name}", decision.reason, decision.message)

    def _new_entries(self) -> list[JournalEntry]:
        entries = list(self._loop.journal)
        start = entries.index(self._last) + 1 if self._last in entries else 0
        if entries:
            self._last = entries[-1]
        return entries[start:]
