"""What a process knows of a gang beyond what the conditions of its pods say, and how long things take."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.gangs.planning import Shortfall
from extender.state.pod_conditions import Keeping

KEPT_SECONDS: Final = 60.0
"""Devices are kept for a gang for this time after the plan, and after each pod that is bound."""

PATIENCE_SECONDS: Final = 1.0
"""The longest time from the first rejection of a member to the plan: kube-scheduler asks about the others meanwhile."""

PLANNING_SECONDS: Final = 0.5
"""The longest time of all plans in one turn: the turns of other tasks wait."""

IDLE_SECONDS: Final = 2 * KEPT_SECONDS
"""A process whose scheduler has asked about no member for this time leaves what is kept to another process."""

SEEN_SECONDS: Final = 10.0
"""If the watch does not show a plan within this time, another process has changed it. If it does not show a PodGroup
within this time, the PodGroup is gone."""

FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
"""After devices were given back, a gang waits this time, and twice as long each time: others may get the devices."""

AGAIN_SECONDS: Final = 2.0
"""A plan that a limit has stopped is made again after this time."""


@dataclass(slots=True)
class Watch:
    """What this process knows of one gang.

    Attributes:
        members: the size, and the uids of the pods, at the last look.
        is_due: something has changed that may help.
        again: no plan is made before, by the solver's clock.
        pause: from devices that are given back to the next plan.
        writing: what was written for pods, until the watch shows it.
        written: when that was.
        begun: when devices were kept first; None while nothing is kept.
        bound: how many members had a node at the last look.
        until: when devices are given back.
        active: when this process was last asked about a member, or has last written a plan.
        shortfall: why there was no plan.
    """

    members: tuple[int, frozenset[str]] = (0, frozenset())
    is_due: bool = True
    again: float = 0.0
    pause: float = FIRST_PAUSE_SECONDS
    writing: dict[str, Keeping] = field(default_factory=dict)
    written: float = 0.0
    begun: float | None = None
    bound: int = 0
    until: float = 0.0
    active: float = -inf
    shortfall: Shortfall | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A member that filter has rejected.

    Attributes:
        names: the nodes that filter was asked about.
        since: when it was asked first, by the solver's clock.
        was_ready: the gang was ready, but the pod found no devices on the node that is kept for it.
    """

    names: Sequence[str]
    since: float
    was_ready: bool
