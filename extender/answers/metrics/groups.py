"""The metrics of a service, one group for each noun. Groups count what happens, when it happens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from extender.kube.access import RefusalReason

CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Buckets for times of calls."""

WAITING_SECONDS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
"""Buckets for times that pods wait. Times of creation are whole seconds, and pods may wait for days."""


Values: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the value."""


def full_name(name: str) -> str:
    """The name of a metric with the prefix of all."""
    return f"dra_extender_{name}"


def gauge(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    """A gauge, its name without the prefix of all."""
    family = GaugeMetricFamily(full_name(name), text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def counter(name: str, text: str, labels: Sequence[str], values: Values) -> Metric:
    """A counter, its name without the prefix of all."""
    family = CounterMetricFamily(full_name(name), text, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


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
        self._nodes("passed").inc(passed)
        self._nodes("failed").inc(failed)
        self._nodes("unresolvable").inc(unresolvable)
        self._steps.inc(steps)


class ClaimMetrics:
    """Counts what happens to claims."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
        self._deallocated = Counter(
            "dra_extender_deallocated_claims",
            "Claims that gave back their devices because they kept their pod off every node.",
            registry=registry,
        )

    def clashed(self) -> None:
        """An allocation came after another allocation of the same devices."""
        self._double_allocations.inc()

    def lost(self) -> None:
        """A bound pod has lost a claim."""
        self._lost.inc()

    def deallocated(self, claims: int) -> None:
        """Some claims were deallocated so that their pod fits elsewhere."""
        self._deallocated.inc(claims)


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
        """This number of pods were evicted for another pod."""
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


class GangMetrics:
    """Counts plans of gangs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._planned = Counter(
            "dra_extender_gangs_planned",
            "Plans: devices were kept for the pods of a group together.",
            registry=registry,
        )
        self._given_back = Counter(
            "dra_extender_gangs_given_back",
            "Times that the kept devices of a group were given back together before the group was placed.",
            registry=registry,
        )
        self._seconds = Histogram(
            "dra_extender_gang_duration_seconds",
            "Time from the plan of a group until its size was reached by pods with a node.",
            buckets=WAITING_SECONDS,
            registry=registry,
        )

        self._in_part = Gauge(
            "dra_extender_gangs_in_part",
            "Groups of which some pods have a node, and too few, for at least five seconds.",
            registry=registry,
        )

    def planned(self) -> None:
        """Devices were kept for a gang."""
        self._planned.inc()

    def placed(self, seconds: float) -> None:
        """Enough pods of a gang have a node, this time after the plan."""
        self._seconds.observe(seconds)

    def given_back(self) -> None:
        """The devices that were kept for a gang were given back."""
        self._given_back.inc()

    def in_part(self, number: int) -> None:
        """So many gangs run in part."""
        self._in_part.set(number)


_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


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
        """A question was asked."""
        self._duration.labels(controller, kind, code).observe(seconds)

    def waited(self, controller: str, seconds: float) -> None:
        """A scheduler has waited for an answer."""
        self._waited.labels(controller).inc(seconds)

    def deferred(self, controller: str) -> None:
        """A scheduler did not wait for an answer."""
        self._deferred.labels(controller).inc()

    def watch(self, waiting: Callable[[], Mapping[str, int]], controllers: Mapping[str, _Controller]) -> None:
        """Read the gauges of these controllers from these functions at each scrape."""
        for name, each in controllers.items():
            self._waiting.labels(name).set_function(lambda name=name: waiting().get(name, 0))  # type: ignore[misc]
            self._up.labels(name).set_function(lambda each=each: not each.problem)  # type: ignore[misc]
            self._waited.labels(name)
            self._deferred.labels(name)


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
