"""What a process knows of a gang beyond what the conditions of its pods say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType

from extender.background.gangs.time_limits import AGAIN_SECONDS, FIRST_PAUSE_SECONDS
from extender.cluster.objects.pods import Keeping
from extender.gangs.plan import Shortfall


@dataclass(slots=True)
class Watch:
    """What this process knows of one gang.

    Attributes:
        members: the size, and the claims that were made for each pod by its uid, at the last look.
        is_due: something has changed that may help.
        again: no plan is made before, by the solver's clock.
        pause: from devices that are given back to the next plan.
        is_planning: a plan is being made.
        overdue: the end of the first turn in which a plan was to be made, and time did not suffice; infinite: none.
        is_overtaken: others have got devices of the latest plan while it was made.
        writing: what was written for pods, until the watch shows it.
        written: when that was.
        begun: when devices were kept first; None while nothing is kept.
        bound: how many members had a node at the last look.
        until: when devices are given back.
        active: when this process was last asked about a member, or has last written a plan.
        shortfall: why there was no plan.
        making_room: until when the scheduler of a member makes room on the kept node by evictions, by the pod's uid.
    """

    members: tuple[int, Mapping[str, Mapping[str, str | None]]] = (0, MappingProxyType({}))
    is_due: bool = True
    again: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    is_planning: bool = False
    overdue: float = inf
    is_overtaken: bool = False
    writing: dict[str, Keeping] = field(default_factory=dict)
    written: float = 0.0
    begun: float | None = None
    bound: int = 0
    until: float = 0.0
    active: float = -inf
    shortfall: Shortfall | None = None
    making_room: dict[str, float] = field(default_factory=dict)

    def asked_again(self, now: float) -> None:
        """A scheduler tries a member again: something may have changed that is not known here, such as free CPU."""
        if not self.is_due:
            self.is_due, self.again = True, max(self.again, now + AGAIN_SECONDS)
