"""Occasions for notices, read from TrainingJobs as the API server has them and from the planner's decisions.  Pure."""

from __future__ import annotations

from autoscaler.clusters.kubernetes.objects.fields import Raw, condition_of, text, unix_s
from autoscaler.operator.notices.due_notices import NoticeKind, NoticeRule, Occasion
from autoscaler.operator.status.conditions import ConditionType


def occasions_of_job(raw: Raw, rule: NoticeRule) -> tuple[Occasion, ...]:
    """Return what its status says: that it failed, or since when it waits.  Nothing of a job without a status."""
    failed = condition_of(raw, ConditionType.FAILED)
    if text(failed, "status") == "True":
        since = unix_s(text(failed, "lastTransitionTime"))
        return () if since is None else (_occasion(raw, NoticeKind.JOB_FAILED, failed, since, after_s=0.0),)
    since = unix_s(text(raw, "status", "waitingSince"))
    if since is None:
        return ()
    admitted = condition_of(raw, ConditionType.ADMITTED)
    return (_occasion(raw, NoticeKind.JOB_WAITS, admitted, since, after_s=rule.wait_s),)


def _occasion(raw: Raw, kind: NoticeKind, condition: Raw, since: float, *, after_s: float) -> Occasion:
    return Occasion(
        kind=kind,
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        uid=text(raw, "metadata", "uid"),
        since_unix_s=since,
        due_unix_s=since + after_s,
        reason=text(condition, "reason"),
        message=text(condition, "message"),
    )
