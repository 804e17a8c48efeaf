"""The metrics of the CCI resource manager: those of KEP-3675, and those that it leaves open."""

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

BUILT_IN: Final = "built-in"
"""The label ``driver`` of containers whose claim names no driver."""


class CciMetrics:
    """Counts containers with claims for CPUs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._requests = Counter(
            "cci_manager_allocation_requests",
            "Containers with a claim for CPUs that were about to be made, by the driver of the claim.",
            ("driver",),
            registry=registry,
        )
        self._errors = Counter(
            "cci_manager_allocation_errors",
            "Of these, containers that were not made, because the driver refused, failed or gave wrong CPUs.",
            ("driver",),
            registry=registry,
        )
        self._available = Gauge(
            "cci_manager_available_cpus", "CPUs that claims can have and that no claim has.", registry=registry
        )
        self._up = Gauge(
            "cci_manager_driver_up", "Whether a CCI driver is registered and answers.", ("driver",), registry=registry
        )
        self._seen: set[str] = set()

    def requested(self, driver: str) -> None:
        """A container asks for CPUs of its claim. ``driver``: empty for the built-in one."""
        self._requests.labels(driver or BUILT_IN).inc()
        self._errors.labels(driver or BUILT_IN)  # so that it is 0 and not absent

    def failed(self, driver: str) -> None:
        """It gets none."""
        self._errors.labels(driver or BUILT_IN).inc()

    def available(self, cpus: int) -> None:
        """How many CPUs no claim has now."""
        self._available.set(cpus)

    def drivers(self, names: Collection[str], needed: Collection[str]) -> None:
        """The drivers that answer now, and those that claims have."""
        self._seen.update(names, needed)
        for each in self._seen:
            self._up.labels(each).set(each in names)
