"""Metrics of autoscalers' sessions."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


class SessionMetrics:
    """Counts sessions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sessions = Gauge("dra_extender_sessions", "Sessions of autoscalers that are kept.", registry=registry)

    def watch(self, count: Callable[[], float]) -> None:
        """Read the number of sessions from this function at each scrape."""
        self._sessions.set_function(count)
