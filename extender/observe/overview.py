"""What there is to see of a running service, beside the answers of its verbs."""

from dataclasses import dataclass

from allocator import Features
from extender.decisions.evaluate import Decider
from extender.kube.api import RESOURCES
from extender.observe.decision_log import DecisionLog
from extender.observe.tables.devices import DeviceCounts
from extender.state.live import LiveCluster
from extender.state.state import ClusterState


@dataclass(frozen=True, slots=True)
class KindHealth:
    """How well one kind of object is known.

    Attributes:
        kind: its plural.
        problem: why what is known is not to be relied on; empty if it is.
        objects: that are kept; of pods, those that may need devices.
        unreadable: that are as good as absent.
        revision: up to which everything is known.
        age: seconds since the last sign of life of its watch; None where it is not watched, or not synced yet.
    """

    kind: str
    problem: str
    objects: int
    unreadable: int
    revision: int
    age: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Looks at a service's cluster and its decisions.

    Attributes:
        devices: counts them.
        decider: counts what it knew and what not.
        live: the cluster behind the state; None for one in memory, which is known at once.
    """

    state: ClusterState
    features: Features
    decision_log: DecisionLog
    devices: DeviceCounts
    decider: Decider
    live: LiveCluster | None = None

    def kinds(self) -> tuple[KindHealth, ...]:
        """Every kind, by its plural."""
        ages = self.live.ages() if self.live else {}
        problems = [kind for kind, _ in self.state.snapshot.problems]
        found = (
            KindHealth(
                kind=resource.plural,
                problem=self.state.doubt_of(resource),
                objects=self.state.count(resource),
                unreadable=problems.count(resource.kind),
                revision=self.state.seen(resource),
                age=ages.get(resource.kind),
            )
            for resource in RESOURCES.values()
        )
        return tuple(sorted(found, key=lambda health: health.kind))
