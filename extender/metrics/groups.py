"""The metrics of a service, one group for each noun; the small groups stand here.

Groups count what happens, when it happens. The metrics in `cluster` and `process` are computed at each scrape.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from extender.access.gate import RefusalReason
from extender.metrics.claims import ClaimMetrics
from extender.metrics.controllers import ControllerMetrics
from extender.metrics.families import WAITING_SECONDS
from extender.metrics.gangs import GangMetrics
from extender.metrics.preemption import PreemptionMetrics
from extender.metrics.verbs import VerbMetrics


class SessionMetrics:
    """Counts sessions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sessions = Gauge("dra_extender_sessions", "Sessions of autoscalers that are kept.", registry=registry)

    def watch(self, count: Callable[[], float]) -> None:
        """Read the number of sessions from this function at each scrape."""
        self._sessions.set_function(count)


class CallerMetrics:
    """Counts callers that are refused."""

    def __init__(self, registry: CollectorRegistry) -> None:
        refused = Counter(
            "dra_extender_callers_refused",
            "TLS handshakes and requests of callers that are not known, or may not do what they ask for, by reason.",
            ("reason",),
            registry=registry,
        )
        self._refused = {reason: refused.labels(reason.value) for reason in RefusalReason}

    def refused(self, reason: RefusalReason) -> None:
        """A caller was refused."""
        self._refused[reason].inc()


class PodMetrics:
    """Counts what happens to pods."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._woken = Counter(
            "dra_extender_woken_pods",
            "Rejected pods that were patched because they may fit now, so that their scheduler tries them again.",
            registry=registry,
        )
        self._allocation = Histogram(
            "dra_extender_pod_allocation_seconds",
            "Time from a pod's creation until a bind has allocated its claims.",
            buckets=WAITING_SECONDS,
            registry=registry,
        )

    def woken(self, pods: int) -> None:
        """Some pods were woken."""
        self._woken.inc(pods)

    def allocated(self, seconds: float) -> None:
        """A pod's claims were allocated, so long after its creation; clocks of machines differ."""
        self._allocation.observe(max(0.0, seconds))


class Metrics:
    """The metrics, named and bucketed as kube-scheduler's are.

    Args:
        registry: has all metrics. It is an argument, so that two services in one process do not share numbers.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.verbs = VerbMetrics(registry)
        self.claims = ClaimMetrics(registry)
        self.pods = PodMetrics(registry)
        self.preemption = PreemptionMetrics(registry)
        self.gangs = GangMetrics(registry)
        self.controllers = ControllerMetrics(registry)
        self.callers = CallerMetrics(registry)
        self.sessions = SessionMetrics(registry)
