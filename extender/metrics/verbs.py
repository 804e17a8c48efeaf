"""Metrics of verbs: how long they take, and what filter answers."""

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from extender.metrics.families import CALL_SECONDS


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
