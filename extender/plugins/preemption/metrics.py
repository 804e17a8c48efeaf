"""The metrics of preemptions and their victims."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from extender.tools.metrics import WAITING_SECONDS


class PreemptionMetrics:
    """Counts preemptions and their victims."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._preemptions = Counter(
            "dra_extender_preemptions", "Preemptions: pods for which others were evicted.", registry=registry
        )
        self._victims = Counter(
            "dra_extender_preemption_victims",
            "Pods evicted so that a pod of higher priority gets their devices.",
            registry=registry,
        )
        self._in_vain = Counter(
            "dra_extender_preemption_victims_in_vain",
            "Evicted pods whose devices the pod did not take, although the node and the devices were left for it.",
            registry=registry,
        )
        self._refused = Counter(
            "dra_extender_evictions_refused",
            "Preemptions that were put off: a cap of evictions, or evictions in vain before.",
            ["by"],
            registry=registry,
        )
        self._seconds = Histogram(
            "dra_extender_preemption_duration_seconds",
            "Time from the choice of the victims until the pod is bound.",
            buckets=WAITING_SECONDS,
            registry=registry,
        )

    def preempted(self) -> None:
        """The first victim of a preemption was evicted."""
        self._preemptions.inc()

    def evicted(self, victims: int) -> None:
        """Note how many pods were evicted for another pod."""
        self._victims.inc(victims)

    def in_vain(self, victims: int) -> None:
        """A pod did not take the devices of this number of victims."""
        self._in_vain.inc(victims)

    def refused(self, by: str) -> None:
        """A pod may not evict others now. ``by``: what keeps it from that (`RefusedBy`)."""
        self._refused.labels(by).inc()

    def took(self, seconds: float) -> None:
        """A pod was bound to the node where victims were evicted for it."""
        self._seconds.observe(seconds)
