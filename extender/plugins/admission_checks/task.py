"""Answers admission checks, in the replica that holds the lease; and the metrics and the problem of these checks."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import inf
from typing import Final, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.kueue import PENDING, READY, RETRY, AdmissionCheck, Workload
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.lease import LONG, SharedLease
from extender.cluster.writes.other_kinds import write_active, write_check_states
from extender.config.settings import AdmissionCheckSettings, Settings
from extender.framework.decisions.solver import Solver
from extender.framework.handle import Handle
from extender.framework.problem import Find, Look, Problem
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError, timestamp
from extender.kube.resources import ADMISSION_CHECKS, OF_KUEUE, WORKLOADS
from extender.plugins.admission_checks import CONTROLLER
from extender.plugins.admission_checks.answers import Times, answer, as_entry_of, is_better_words, is_new
from extender.plugins.admission_checks.jobs import Job, KnownJobs
from extender.plugins.admission_checks.judging import NOT_DECIDED, Round, Verdict
from extender.tools.fairness import Turns
from extender.tools.offload import Offload

LEASE: Final = ObjectKey("kube-system", "dra-extender-admission-checks")
"""The lease of the replica that answers admission checks."""

PAUSE_SECONDS: Final = 1.0
"""The shortest time from the end of a round to the next round."""

REST: Final = 4.0
"""The pause after a round is this many times as long as the round: other work goes on meanwhile. A job that takes long
has a pause of its own, so that other jobs do not wait for it."""

SLOW_SECONDS: Final = 0.5
"""A job takes long if its judgement takes longer."""

ROUND_SECONDS: Final = 2.0
"""After this time, a round begins with no other job. The next round goes on with the jobs that had no turn."""

SEEN_SECONDS: Final = 10.0
"""A round begins once the watch has shown what the last one has written, or after this time."""

MESSAGE_SECONDS: Final = 30.0
"""The shortest time between two messages for a job that waits: how many pods get devices may change all the time."""

MOST_WRITES: Final = 8
"""The most writes at a time."""

FAILED_SECONDS: Final = 10.0
"""The pause after something could not be written."""

logger = structlog.get_logger()


class CheckMetrics:
    """Counts jobs and answers. Only the replica that answers counts any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Jobs of Kueue that wait for devices, and those for whose pods others leave devices."
        self._jobs = Gauge("dra_extender_admission_check_jobs", text, ["state"], registry=registry)
        text = "Answers to admission checks, by the state that was written."
        self._answers = Counter("dra_extender_admission_check_answers", text, ["state"], registry=registry)
        text = "Answers to admission checks that could not be written."
        self._failed = Counter("dra_extender_admission_check_answers_failed", text, registry=registry)
        for state in (READY, PENDING, RETRY):
            self._answers.labels(state.lower())
        self.jobs(0, 0)

    def jobs(self, waiting: int, kept: int) -> None:
        """Note how many jobs wait, and for how many devices are kept."""
        self._jobs.labels("waiting").set(waiting)
        self._jobs.labels("kept").set(kept)

    def answered(self, state: str) -> None:
        """An answer was written."""
        self._answers.labels(state.lower()).inc()

    def failed(self) -> None:
        """An answer could not be written."""
        self._failed.inc()


class Judged(NamedTuple):
    """A job that had its turn.

    Attributes:
        seconds: that the judgement took.
    """

    job: Job
    verdict: Verdict
    seconds: float


@dataclass(frozen=True, slots=True)
class Judges:
    """The judges of jobs.

    Attributes:
        solver: the allocator.
        schedulers: names of the schedulers that call the extender; empty: not known.
        off_loop: where jobs are judged.
    """

    solver: Solver
    schedulers: Collection[str]
    off_loop: Offload

    async def verdicts(
        self, snapshot: Snapshot, kept: Sequence[Job], jobs: Sequence[Job], turns: Turns
    ) -> list[Judged]:
        """The verdicts on jobs in fair turns of their namespaces, for as long as a round may take."""
        return await self.off_loop(partial(self._judged, snapshot, kept, jobs, turns))

    def _judged(self, snapshot: Snapshot, kept: Sequence[Job], jobs: Sequence[Job], turns: Turns) -> list[Judged]:
        found: list[Judged] = []
        until = self.solver.clock() + ROUND_SECONDS
        judging = Round(snapshot, self.solver)
        judging.begin(kept, self.schedulers)
        for job in turns.ordered(jobs, lambda job: job.workload.namespace):
            if found and self.solver.clock() > until:
                break
            began, verdict = self.solver.clock(), NOT_DECIDED
            with turns.of(job.workload.namespace), self.solver.faults.of(f"workload {job.workload}"):
                verdict = judging.judge(job.workload)
            found.append(Judged(job, verdict, self.solver.clock() - began))
        return found


class AdmissionChecks(BackgroundTask):
    """Answers the checks of jobs: at once, and again after changes that may alter the answer.

    Args:
        state: the cluster.
        api: the API server.
        lease: this replica holds it while jobs are asked about.
        judges: judge jobs.
        times: of the settings.
        now: the time.
        metrics: count.
    """

    def __init__(
        self,
        state: ClusterState,
        api: Api,
        lease: SharedLease,
        judges: Judges,
        times: Times,
        now: Callable[[], datetime],
        metrics: CheckMetrics,
    ) -> None:
        self._state, self._api, self._lease, self._judges = state, api, lease, judges
        self._times, self._now, self._metrics = times, now, metrics
        self._clock = judges.solver.clock
        self._known = KnownJobs(state)
        self._turns = Turns(self._clock)
        self._again = 0.0
        self._due: datetime | None = None
        """When time alone alters an answer."""
        self._later = inf
        """When a message or a job is due that waits for its time."""
        self._slow: dict[ObjectKey, float] = {}
        """Until when a job is not judged again that took long, or that could not be answered."""
        self._written = (0, 0.0)
        """The newest revision that was written, and when."""
        self._judged: set[ObjectKey] = set()
        """The jobs that had their turn since all of them had one."""
        self._told: dict[ObjectKey, float] = {}
        """When each job that waits was told why last."""

    @property
    def idle_seconds(self) -> float:
        """Until the next round or the next renewal of the lease, if there are such jobs."""
        is_idle = not (self._known.jobs or self._lease.is_held)
        return UNTIL_NEWS if is_idle else max(PAUSE_SECONDS, self._again - self._clock())

    async def tick(self) -> None:
        """Answer the jobs that are asked about, if an answer may be another one now."""
        if self._clock() < self._again or self._state.not_ready or any(map(self._state.doubt_of, OF_KUEUE)):
            return
        snapshot, now = self._known.follow(), self._now()
        inactive = [each for each in self._known.checks if not each.is_active]
        try:
            if not (self._known.jobs or inactive):
                self._metrics.jobs(0, 0)
                await self._lease.give_back()
                return
            if not await self._lease.take():
                self._metrics.jobs(0, 0)
                return
            for each in inactive:
                await write_active(self._api, each, timestamp(now))
        except (ApiError, OutcomeUnknownError, WriteRefusedError) as error:
            self._fail("admission checks not answered", error)
            return
        if self._is_due(now):
            self._known.is_changed, self._later = False, inf
            kept, waiting = self._known.asked(now, self._times.keep)
            self._metrics.jobs(len(waiting), len(kept))
            if waiting:
                await self._round(snapshot, kept, waiting)
            self._due = self._next_time()

    def _is_due(self, now: datetime) -> bool:
        revision, at = self._written
        if self._state.seen(WORKLOADS) < revision and self._clock() < at + SEEN_SECONDS:
            return False
        is_time = (self._due is not None and now >= self._due) or self._clock() >= self._later
        return self._known.is_changed or is_time

    async def _round(self, snapshot: Snapshot, kept: Sequence[Job], waiting: Sequence[Job]) -> None:
        """Judge jobs, and write the answers that are new."""
        began = self._clock()
        due = [job for job in waiting if self._slow.get(job.workload.key, 0.0) <= began]
        if len(due) < len(waiting):
            self._later = min(at for at in self._slow.values() if at > began)
        if not due:
            return
        left = [job for job in due if job.workload.key not in self._judged]
        if not left:
            self._judged, left = set(), due
        found = await self._judges.verdicts(snapshot, kept, sorted(left, key=lambda job: job.order), self._turns)
        self._rest(found, began)
        had_turn = {each.job.workload.key for each in found}
        self._judged = self._judged | had_turn if len(had_turn) < len(left) else set()
        self._known.is_changed = self._known.is_changed or bool(self._judged)
        if await self._still_holds():
            await self._write(found)
        self._told = {key: at for key, at in self._told.items() if key in self._known.jobs}

    async def _still_holds(self) -> bool:
        """Whether no other replica has taken the lease meanwhile: a round may be longer than the lease lasts."""
        try:
            is_held = await self._lease.take()
        except (OutcomeUnknownError, WriteRefusedError) as error:
            self._fail("admission checks not answered", error)
            return False
        self._known.is_changed = self._known.is_changed or not is_held
        return is_held

    def _rest(self, found: Sequence[Judged], began: float) -> None:
        """Set the pauses after a round: of jobs that took long, and of all jobs."""
        now = self._clock()
        slow = {each.job.workload.key: each.seconds for each in found if each.seconds > SLOW_SECONDS}
        self._slow = {key: at for key, at in self._slow.items() if key in self._known.jobs and at > now}
        self._slow |= {key: now + REST * seconds for key, seconds in slow.items()}
        self._again = now + max(PAUSE_SECONDS, REST * (now - began - sum(slow.values())))

    def _next_time(self) -> datetime | None:
        """When time alone alters an answer: what is kept ends, or quota is given back."""
        now, found = self._now(), list[datetime]()
        for job in self._known.jobs.values():
            times = (job.kept_until(self._times.keep), None if job.is_ready else self._times.gives_back_at(job))
            found += [each for each in times if each is not None and each > now]
        return min(found, default=None)

    async def _write(self, found: Sequence[Judged]) -> None:
        limit = asyncio.Semaphore(MOST_WRITES)

        async def write(job: Job, verdict: Verdict) -> None:
            entries = self._entries(job, verdict)
            if entries:
                async with limit:
                    await self._write_one(job, entries)

        await asyncio.gather(*(write(each.job, each.verdict) for each in found))

    def _entries(self, job: Job, verdict: Verdict) -> Mapping[str, RawObject]:
        """What is new for a job. A message that replaces another one waits for its time."""
        wanted = answer(job, verdict, self._now(), self._times)
        entries = {each.name: as_entry_of(each, wanted) for each in job.states if is_new(wanted, each, verdict)}
        is_message = all(is_better_words(wanted, each) for each in job.states)
        told = self._told.get(job.workload.key)
        if entries and is_message and told is not None and self._clock() < told + MESSAGE_SECONDS:
            self._later = min(self._later, told + MESSAGE_SECONDS)
            return {}
        return entries

    async def _write_one(self, job: Job, entries: Mapping[str, RawObject]) -> None:
        workload = job.workload
        try:
            revision = await write_check_states(self._api, workload, entries)
        except OutcomeUnknownError as error:  # if it has happened, others wait until the watch shows what was promised
            self._fail("admission check not answered", error, workload=str(workload))
            return
        except ApiError as error:
            if error.is_conflict or error.is_missing:
                self._known.is_changed = True
            else:
                self._rest_after(error, workload)
            return
        if not revision:
            self._known.is_changed = True
            return
        self._written = max(self._written[0], revision), self._clock()
        self._told[workload.key] = self._clock()
        state = next(iter(entries.values()))
        self._metrics.answered(state["state"])
        logger.info("admission check answered", workload=str(workload), state=state["state"], message=state["message"])

    def _rest_after(self, error: ApiError, workload: Workload) -> None:
        """The answer for a job was refused: it has a pause, and the others go on."""
        self._slow[workload.key] = again = self._clock() + FAILED_SECONDS
        self._later = min(self._later, again)
        self._metrics.failed()
        logger.warning("admission check not answered", error=str(error), workload=str(workload))

    def _fail(self, event: str, error: Exception, **fields: str) -> None:
        """It is not known what was written, or the lease cannot be had: the API server has its time."""
        self._again = self._clock() + FAILED_SECONDS
        self._known.is_changed = True
        self._metrics.failed()
        logger.warning(event, error=str(error), **fields)


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task that answers admission checks, if the settings say so."""
    settings: AdmissionCheckSettings = handle.settings.admission_checks
    lease, metrics = handle.lease(LEASE, LONG), CheckMetrics(handle.registry)
    if not (settings.enabled and handle.has_schedulers):
        return []
    back = settings.give_back_seconds
    times = Times(timedelta(seconds=settings.keep_seconds), timedelta(seconds=back) if back else None)
    judges = Judges(handle.solver, handle.settings.scheduling.scheduler_names, handle.in_background)
    return [AdmissionChecks(handle.state, handle.api, lease, judges, times, handle.now, metrics)]


def problems(settings: Settings) -> Find:
    """Make the finder of checks that nobody asks for: Kueue is not installed, or no AdmissionCheck names us."""

    def find(look: Look) -> Iterator[Problem]:
        checks = look.snapshot.objects(AdmissionCheck).values()
        if settings.admission_checks.enabled and all(each.controller != CONTROLLER for each in checks):
            text = f"admissionChecks.enabled is on, and no AdmissionCheck has controllerName {CONTROLLER}"
            cost = "Kueue admits jobs without asking whether there are devices"
            advice = "install Kueue 0.17 or later, and make an AdmissionCheck that ClusterQueues name; or turn it off"
            yield Problem("admission-check", ADMISSION_CHECKS.kind, ObjectKey("", CONTROLLER), text, cost, advice)

    return find
