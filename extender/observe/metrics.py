"""The service's metrics. The registry is an argument, so that two services in one process do not share numbers.

These count what happens, when it happens. `gauges` computes its metrics at each scrape.
"""

from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_WAITING_SECONDS = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
"""Times of creation are whole seconds, and pods may wait for days."""


class Metrics:
    """The service's metrics, named and bucketed as kube-scheduler's are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        duration = Histogram(
            "dra_extender_verb_duration_seconds",
            "Time from the request's body to the reply, by verb and code (ok or error).",
            ("verb", "code"),
            buckets=_SECONDS,
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
        self._double_allocations = Counter(
            "dra_extender_clashes",
            "Allocations, ours or others', that came after another allocation of the same devices.",
            registry=registry,
        )
        self._lost = Counter(
            "dra_extender_lost_claims",
            "Claims of bound pods that others have deallocated, or deleted and made again.",
            registry=registry,
        )
        self._woken = Counter(
            "dra_extender_woken_pods",
            "Rejected pods that were patched because they may fit now, so that their scheduler tries them again.",
            registry=registry,
        )
        self._deallocated = Counter(
            "dra_extender_deallocated_claims",
            "Claims that gave back their devices because they kept their pod off every node.",
            registry=registry,
        )
        self._allocation = Histogram(
            "dra_extender_pod_allocation_seconds",
            "Time from a pod's creation until a bind has allocated its claims.",
            buckets=_WAITING_SECONDS,
            registry=registry,
        )
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
        self._preemption_seconds = Histogram(
            "dra_extender_preemption_duration_seconds",
            "Time from the choice of the victims until the pod is bound.",
            buckets=_WAITING_SECONDS,
            registry=registry,
        )
        self._sessions = Gauge("dra_extender_sessions", "Sessions of autoscalers that are kept.", registry=registry)
        # Children by label are few and kept here: prometheus_client would look each up under a lock.
        self._duration = cache(duration.labels)
        self._nodes = cache(nodes.labels)

    def expect(self, verb: str) -> None:
        """There is such a verb: it has been called 0 times."""
        for code in ("ok", "error"):
            self._duration(verb, code)

    def verb(self, verb: str, code: str, seconds: float) -> None:
        """One call has been answered."""
        self._duration(verb, code).observe(seconds)

    def clashed(self) -> None:
        """An allocation came after another allocation of the same devices."""
        self._double_allocations.inc()

    def lost(self) -> None:
        """A bound pod has lost a claim."""
        self._lost.inc()

    def woken(self, pods: int) -> None:
        """Some pods were woken."""
        self._woken.inc(pods)

    def deallocated(self, claims: int) -> None:
        """Some claims were deallocated so that their pod fits elsewhere."""
        self._deallocated.inc(claims)

    def allocated(self, seconds: float) -> None:
        """A pod's claims were allocated, so long after its creation; clocks of machines differ."""
        self._allocation.observe(max(0.0, seconds))

    def preempted(self) -> None:
        """Other pods are evicted for a pod."""
        self._preemptions.inc()

    def evicted(self, victims: int) -> None:
        """Some pods were evicted for another pod."""
        self._victims.inc(victims)

    def preempted_in_vain(self, victims: int) -> None:
        """A pod did not take what others were evicted for."""
        self._in_vain.inc(victims)

    def preemption_took(self, seconds: float) -> None:
        """A pod is bound for which others were evicted."""
        self._preemption_seconds.observe(seconds)

    def watch_sessions(self, count: Callable[[], float]) -> None:
        """Read the number of sessions from this function at each scrape."""
        self._sessions.set_function(count)

    def filtered(self, *, passed: int, failed: int, unresolvable: int, steps: int) -> None:
        """One pod that needs devices has been filtered."""
        self._nodes("passed").inc(passed)
        self._nodes("failed").inc(failed)
        self._nodes("unresolvable").inc(unresolvable)
        self._steps.inc(steps)
