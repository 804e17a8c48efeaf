"""A plan for a gang: a seat for each of its pods, or why there is no plan."""

from dataclasses import dataclass, field

from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Seat:
    """The node and devices that are to be kept for one pod.

    Attributes:
        pod: as it is once that is written.
    """

    pod: Pod

    @property
    def keeping(self) -> Keeping:
        """The node and the devices."""
        return self.pod.kept


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why there is no plan.

    Attributes:
        placed: the largest number of pods that had devices at the same time.
        wanted: the number of pods that need devices.
        reason: why the next pod found no node.
        is_final: everything was tried; otherwise a limit has stopped the search.
        next: the next pod, and the fork in which the pods before it have devices; None: it is not known.
    """

    placed: int
    wanted: int
    reason: str
    is_final: bool = True
    next: tuple[Pod, Snapshot] | None = field(default=None, compare=False, repr=False)


GangPlan = tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Seating:
    """Seats, and the cluster in which their pods have them."""

    seats: GangPlan
    fork: Snapshot
