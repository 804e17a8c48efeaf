"""The metrics of what the verbs answer, and of allocations."""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from extender.tools.metrics import CALL_SECONDS, WAITING_SECONDS


class VerbMetrics:
    """Counts calls of verbs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        duration = Histogram(
            "dra_extender_verb_duration_seconds",
            "Time from the request's body to the reply, by verb and code (ok or error).",
            ("verb", "code"),
            buckets=CALL_SECONDS,
            registry=registry,
        )
        nodes = Counter(
            "dra_extender_filtered_nodes",
            "Nodes that filter was asked about, by outcome, for pods that need devices.",
            ("outcome",),
            registry=registry,
        )
        self._steps = Counter(
            "dra_extender_allocator_steps", "Devices tried by the allocator's search.", registry=registry
        )
        # Children by label are few and kept here: prometheus_client would look each up under a lock.
        self._duration = cache(duration.labels)
        self._nodes = cache(nodes.labels)

    def expect(self, verb: str) -> None:
        """There is such a verb: it has been called 0 times."""
        for code in ("ok", "error"):
            self._duration(verb, code)

    def answered(self, verb: str, code: str, seconds: float) -> None:
        """One call has been answered."""
        self._duration(verb, code).observe(seconds)

    def filtered(self, *, passed: int, failed: int, unresolvable: int, steps: int) -> None:
        """One pod that needs devices has been filtered."""
        for outcome, count in (("passed", passed), ("failed", failed), ("unresolvable", unresolvable)):
            nodes = self._nodes(outcome)  # it is there from the first call on, although it may be 0
            if count:
                nodes.inc(count)
        if steps:
            self._steps.inc(steps)


class BindMetrics:
    """Counts allocations, and how long pods have waited for them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._double_allocations = Counter(
            "dra_extender_clashes",
            "Allocations, ours or others', that came after another allocation of the same devices.",
            registry=registry,
        )
        self._allocation = Histogram(
            "dra_extender_pod_allocation_seconds",
            "Time from a pod's creation until a bind has allocated its claims.",
            buckets=WAITING_SECONDS,
            registry=registry,
        )

    def clashed(self) -> None:
        """An allocation came after another allocation of the same devices."""
        self._double_allocations.inc()

    def allocated(self, seconds: float) -> None:
        """A pod's claims were allocated, so long after its creation; clocks of machines differ."""
        self._allocation.observe(max(0.0, seconds))


class Metrics:
    """The metrics of a service, named and bucketed as kube-scheduler's are. Each feature adds its own to the registry.

    Args:
        registry: has all metrics. It is an argument, so that two services in one process do not share numbers.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.verbs = VerbMetrics(registry)
        self.binds = BindMetrics(registry)
