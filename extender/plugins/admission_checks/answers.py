"""The answer to a job: the entry of the check in the status of its workload."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import orjson

from extender.cluster.objects.kueue import PENDING, READY, RETRY, CheckState
from extender.kube.api import RawObject, timestamp
from extender.plugins.admission_checks.jobs import JOB_LABEL, Job, label_of
from extender.plugins.admission_checks.judging import Verdict

_WAITING: Final = "waiting for devices since "


@dataclass(frozen=True, slots=True)
class Times:
    """The times of the settings.

    Attributes:
        keep: how long others leave devices to a job that is ready.
        give_back: how long a job waits with its quota; None: without end.
    """

    keep: timedelta
    give_back: timedelta | None

    def gives_back_at(self, job: Job) -> datetime | None:
        """Return when a job gives its quota back; None: never."""
        return None if self.give_back is None else datetime.fromisoformat(job.workload.reserved) + self.give_back


def answer(job: Job, verdict: Verdict, at: datetime, times: Times) -> RawObject:
    """Return the entry for each check of the job. The text is equal as long as nothing changes."""
    if not verdict.reason:
        return _ready(job, verdict, at, times)
    back = times.gives_back_at(job)
    text = f"{_WAITING}{job.workload.reserved}: {verdict.reason}"
    if back is not None and at >= back:
        # Without requeueAfterSeconds: Kueue 0.17 takes the quota back only after that time.
        return _entry(RETRY, text, at)
    return _entry(PENDING, text, at)


def _ready(job: Job, verdict: Verdict, at: datetime, times: Times) -> RawObject:
    if not verdict.pods:
        return _entry(READY, "no pod needs devices", at)
    whom = "its pod" if verdict.pods == 1 else f"its {verdict.pods} pods together"
    entry = _entry(READY, f"there are devices for {whom}; other jobs leave them to it for {times.keep.seconds} s", at)
    updates = [
        {"name": job.workload.pod_sets[place].name, "labels": {JOB_LABEL: label_of(job.workload, place)}}
        for place in verdict.labeled
        if not job.workload.pod_sets[place].is_labeled(JOB_LABEL)  # Kueue refuses a second value
    ]
    return {**entry, "podSetUpdates": updates} if updates else entry


def _entry(state: str, message: str, at: datetime) -> RawObject:
    return {"state": state, "message": message, "lastTransitionTime": timestamp(at)}


def is_new(entry: RawObject, state: CheckState, verdict: Verdict) -> bool:
    """Whether an entry says something new. It does if devices are kept anew."""
    is_kept_anew = entry["state"] == READY and verdict.pods > 0
    return (entry["state"], entry["message"]) != (state.state, state.message) or is_kept_anew


def is_better_words(entry: RawObject, state: CheckState) -> bool:
    """Whether an entry only gives another reason why the job waits."""
    return entry["state"] == state.state == PENDING and state.message.startswith(_WAITING)


def as_entry_of(state: CheckState, answered: RawObject) -> RawObject:
    """Return the answer as the entry of a check, with the fields of the old entry that stay.

    The time of the last transition stays, except for a job that is ready again: devices are kept for it from now on.
    The updates of pod sets stay, whoever has written them: while an entry is ready, Kueue refuses other updates.
    """
    if answered["state"] != state.state:
        return answered
    if answered["state"] == READY:
        updates = [orjson.loads(each) for each in (state.updates or {}).values()]
        rest = {name: value for name, value in answered.items() if name != "podSetUpdates"}
        return {**rest, "podSetUpdates": updates} if updates else rest
    return {**answered, "lastTransitionTime": state.since} if state.since else answered
