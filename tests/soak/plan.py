"""How large a soak is, how long it takes, and when what happens."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

MINUTES: Final = 10
"""In which as much happens as in an hour."""

HAPPENINGS: Final[Mapping[str, int]] = {
    "job": 300,
    "rollout": 40,
    "resize": 60,
    "node failure": 60,
    "drain": 30,
    "slice update": 600,
    "device failure": 60,
    "driver upgrade": 6,
}
"""How often in an hour, by name. A driver upgrade is on a tenth of the nodes."""

CALM: Final = 0.5
"""The share of the time, at its end, in which the extender is not killed: its memory is followed then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A soak.

    Attributes:
        devices: of each node.
        seconds: in which things happen. Start and end come on top.
        kills: of the extender.
        seed: of all that is random.
    """

    nodes: int
    devices: int
    seconds: float
    kills: int
    seed: int


@dataclass(frozen=True, slots=True, order=True)
class Happening:
    """One thing that happens.

    Attributes:
        second: after the start.
        name: of `HAPPENINGS`, or ``kill``.
    """

    second: float
    name: str


def timetable(plan: Plan) -> list[Happening]:
    """All that happens, in its order.

    Things of one name are spread evenly, each at a random time in its part. Their number is that of an hour for
    ``MINUTES``, and less in less time. Kills come before the calm part.
    """
    random = Random(plan.seed)
    share = plan.seconds / (60 * MINUTES)
    numbers = {name: max(1, round(number * share)) for name, number in HAPPENINGS.items()}
    spans = [*((name, number, plan.seconds) for name, number in numbers.items())]
    spans.append(("kill", plan.kills, plan.seconds * (1 - CALM)))
    return sorted(
        Happening((each + random.random()) * span / number, name)
        for name, number, span in spans
        for each in range(number)
    )
