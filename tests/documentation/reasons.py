"""Every reason that a condition of a TrainingJob can bear, read out of the product's code."""

import ast
import inspect
import re
import textwrap
from typing import Final

from autoscaler.domain import Bottleneck
from autoscaler.jobs.idle_report import IdleReason
from autoscaler.jobs.life_events import FailureReason
from autoscaler.jobs.lifecycle import CompletionReason
from autoscaler.jobs.training_health import HealthReason
from autoscaler.operator.status import condition_rules, job_status, status_inputs
from autoscaler.operator.status.conditions import ConditionType
from autoscaler.operator.store.job_store import JobStore

_WORD: Final = re.compile(r"[A-Z][a-z]+[A-Za-z]*")
_SOURCES: Final = (
    condition_rules,
    status_inputs.reason_of,
    job_status.unreadable_status,
    job_status.internal_error_status,
    JobStore.problems_of,
    JobStore.cluster_problems,
)


def _words(source):
    """Each text of the code that is one word as reasons are."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(source)))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {text for text in texts if _WORD.fullmatch(text)}


_NO_REASONS: Final = {kind.value for kind in ConditionType if kind is not ConditionType.SUSPENDED}

REASONS: Final = frozenset(
    (set().union(*map(_words, _SOURCES)) - _NO_REASONS)
    | {one.value for one in (*HealthReason, *Bottleneck, *CompletionReason, *FailureReason, *IdleReason)}
)
