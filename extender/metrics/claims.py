"""Metrics of claims: what becomes of their allocations."""

from prometheus_client import CollectorRegistry, Counter


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
