"""Metrics of callers: who is refused."""

from prometheus_client import CollectorRegistry, Counter

from extender.access.gate import RefusalReason


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
