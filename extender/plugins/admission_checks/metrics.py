"""The metrics of admission checks."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from extender.cluster.objects.kueue import PENDING, READY, RETRY


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
        """So many jobs wait, and for so many are devices kept."""
        self._jobs.labels("waiting").set(waiting)
        self._jobs.labels("kept").set(kept)

    def answered(self, state: str) -> None:
        """An answer was written."""
        self._answers.labels(state.lower()).inc()

    def failed(self) -> None:
        """An answer could not be written."""
        self._failed.inc()
