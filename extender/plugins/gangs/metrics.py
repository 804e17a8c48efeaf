"""The metrics of gangs and their plans."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from extender.tools.metrics import WAITING_SECONDS


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
        """Note how many gangs run in part."""
        self._in_part.set(number)
