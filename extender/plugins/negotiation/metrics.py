"""The metrics of controllers: what they are asked, and who waits for them."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets for times of questions."""


class _Controller(Protocol):
    @property
    def problem(self) -> str: ...


class ControllerMetrics:
    """Metrics by controller.

    Args:
        registry: has the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._duration = Histogram(
            "dra_extender_controller_question_duration_seconds",
            "Time of a question to a controller, by question and code (ok, refused, pending or error).",
            ("controller", "question", "code"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._waiting = Gauge(
            "dra_extender_controller_waiting_pods",
            "Rejected pods that a controller keeps from nodes.",
            ("controller",),
            registry=registry,
        )
        self._waited = Counter(
            "dra_extender_controller_scheduler_wait_seconds_total",
            "Time that schedulers have waited in filter for answers of a controller.",
            ("controller",),
            registry=registry,
        )
        self._deferred = Counter(
            "dra_extender_controller_deferred_answers_total",
            "Filter calls that did not wait for the answer of a controller, because its waitingShare was spent.",
            ("controller",),
            registry=registry,
        )
        self._up = Gauge(
            "dra_extender_controller_up",
            "0 if the controller was away at its latest question, else 1.",
            ("controller",),
            registry=registry,
        )

    def asked(self, controller: str, kind: str, code: str, seconds: float) -> None:
        """A question was asked; ``code``: ok, refused, pending or error."""
        self._duration.labels(controller, kind, code).observe(seconds)

    def waited(self, controller: str, seconds: float) -> None:
        """A scheduler has waited for an answer."""
        self._waited.labels(controller).inc(seconds)

    def deferred(self, controller: str) -> None:
        """A scheduler did not wait for an answer any more, or not at all: the budget is spent."""
        self._deferred.labels(controller).inc()

    def watch(self, waiting: Callable[[], Mapping[str, int]], controllers: Mapping[str, _Controller]) -> None:
        """Read the gauges of these controllers from these functions at each scrape."""
        for name, each in controllers.items():
            self._waiting.labels(name).set_function(lambda name=name: waiting().get(name, 0))  # type: ignore[misc]
            self._up.labels(name).set_function(lambda each=each: not each.problem)  # type: ignore[misc]
            self._waited.labels(name)
            self._deferred.labels(name)
