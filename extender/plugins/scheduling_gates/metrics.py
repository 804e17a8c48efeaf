"""The metrics of the gate."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class GateMetrics:
    """Counts pods at the gate and lifted gates. Only the replica that lifts gates counts any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Pods that wait at the scheduling gate: those that are held, and those that wait for their turn."
        self._pods = Gauge("dra_extender_gated_pods", text, ["state"], registry=registry)
        self._lifted = Counter("dra_extender_lifted_gates", "Scheduling gates that were lifted.", registry=registry)
        self._failed = Counter(
            "dra_extender_lifted_gates_failed", "Scheduling gates that could not be lifted.", registry=registry
        )
        self.at_gate(0, 0)

    def at_gate(self, held: int, waiting: int) -> None:
        """So many pods are held, and so many wait for their turn."""
        self._pods.labels("held").set(held)
        self._pods.labels("waiting").set(waiting)

    def lifted(self) -> None:
        """A gate was lifted."""
        self._lifted.inc()

    def failed(self) -> None:
        """A gate could not be lifted."""
        self._failed.inc()
