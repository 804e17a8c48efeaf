"""Metrics of pods that wait for devices. `cluster` has the number of pending pods."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from extender.metrics.buckets import WAITING_SECONDS


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
