"""The service's metrics. The registry is an argument, so that two services in one process do not share numbers.

These count what happens, when it happens. `gauges` computes its metrics at each scrape.
"""

from collections.abc import Callable
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from extender.access.refusal_reason import RefusalReason
from extender.observe.controller_metrics import ControllerMetrics
from extender.observe.gang_metrics import GangMetrics
from extender.observe.preemption_metrics import WAITING_SECONDS, PreemptionMetrics

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The service's metrics, named and bucketed as kube-scheduler's are.

    Attributes:
        registry: has all metrics.
        preemption: the metrics of device preemption.
        gangs: the metrics of gangs.
        controllers: the metrics of the controllers of negotiated claims.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        duration = histogram(
            "dra_extender_verb_duration_seconds",
            "Time from the request's body to the reply, by verb and code (ok or error).",
            ("verb", "code"),
            buckets=_SECONDS,
        )
        nodes = counter(
            "dra_extender_filtered_nodes",
            "Nodes that filter was asked about, by outcome, for pods that need devices.",
            ("outcome",),
        )
        self._steps = counter("dra_extender_allocator_steps", "Devices tried by the allocator's search.")
        self._double_allocations = counter(
            "dra_extender_clashes",
            "Allocations, ours or others', that came after another allocation of the same devices.",
        )
        self._lost = counter(
            "dra_extender_lost_claims",
            "Claims of bound pods that others have deallocated, or deleted and made again.",
        )
        self._woken = counter(
            "dra_extender_woken_pods",
            "Rejected pods that were patched because they may fit now, so that their scheduler tries them again.",
        )
        self._deallocated = counter(
            "dra_extender_deallocated_claims",
            "Claims that gave back their devices because they kept their pod off every node.",
        )
        refused = counter(
            "dra_extender_callers_refused",
            "TLS handshakes and requests of callers that are not known, or may not do what they ask for, by reason.",
            ("reason",),
        )
        self._allocation = histogram(
            "dra_extender_pod_allocation_seconds",
            "Time from a pod's creation until a bind has allocated its claims.",
            buckets=WAITING_SECONDS,
        )
        self.preemption = PreemptionMetrics(registry)
        self.gangs = GangMetrics(registry)
        self.controllers = ControllerMetrics(registry)
        self._sessions = Gauge("dra_extender_sessions", "Sessions of autoscalers that are kept.", registry=registry)
        # Children by label are few and kept here: prometheus_client would look each up under a lock.
        self._duration = cache(duration.labels)
        self._nodes = cache(nodes.labels)
        self._refused = {reason: refused.labels(reason.value) for reason in RefusalReason}

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

    def refused(self, reason: RefusalReason) -> None:
        """A caller was refused."""
        self._refused[reason].inc()

    def allocated(self, seconds: float) -> None:
        """A pod's claims were allocated, so long after its creation; clocks of machines differ."""
        self._allocation.observe(max(0.0, seconds))

    def watch_sessions(self, count: Callable[[], float]) -> None:
        """Read the number of sessions from this function at each scrape."""
        self._sessions.set_function(count)

    def filtered(self, *, passed: int, failed: int, unresolvable: int, steps: int) -> None:
        """One pod that needs devices has been filtered."""
        self._nodes("passed").inc(passed)
        self._nodes("failed").inc(failed)
        self._nodes("unresolvable").inc(unresolvable)
        self._steps.inc(steps)
