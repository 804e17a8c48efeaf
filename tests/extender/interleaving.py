"""Every order in which tasks can take their steps: tasks stop before each step, and a choice says who goes on.

A run is deterministic but for its choices, so a prefix of choices leads to the same place in every run, and
`explore` tries the other choices from there. Two runs that have led to the same place have the same future; the place
is told by what the world is like and by what each participant has seen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

QUIET_SECONDS = 1e-6
"""Of virtual time: it passes when everybody has stopped."""


@dataclass(frozen=True)
class Step:
    """Something that can be done next.

    Attributes:
        name: says what it is, to people.
        do: does it; what follows from it runs until everybody has stopped again.
    """

    name: str
    do: Callable[[], None]


class Chooser(Protocol):
    """Chooses the next step."""

    def choose(self, count: int, place: Callable[[], Hashable]) -> int | None:
        """Which one of so many; None ends the run.

        Args:
            place: where the run is.
        """
        ...


class World(Protocol):
    """What takes the steps."""

    def steps(self) -> list[Step]:
        """What can be done now, in an order that depends on the choices before and on nothing else."""
        ...

    def place(self) -> Hashable:
        """All that the future depends on."""
        ...

    async def check(self) -> None:
        """Assert what holds at any moment."""
        ...


async def play(world: World, chooser: Chooser) -> list[str]:
    """Take steps until there are none left, or the chooser ends it; the names of those that were taken.

    Raises:
        BrokenError: what was to hold does not.
    """
    taken: list[str] = []
    while True:
        await asyncio.sleep(QUIET_SECONDS)
        try:
            await world.check()
        except AssertionError as error:
            raise BrokenError(taken, str(error)) from error
        steps = world.steps()
        chosen = chooser.choose(len(steps), world.place) if steps else None
        if chosen is None:
            return taken
        taken.append(steps[chosen].name)
        steps[chosen].do()


class BrokenError(AssertionError):
    """The steps that led to where something does not hold."""

    def __init__(self, taken: list[str], message: str) -> None:
        super().__init__("\n".join(("after", *taken, message)))


@dataclass
class Prefix:
    """Follows given choices, then takes the first; ends where a run has been before."""

    given: tuple[int, ...]
    been: set[Hashable]
    counts: list[int] = field(default_factory=list)

    def choose(self, count: int, place: Callable[[], Hashable]) -> int | None:
        depth = len(self.counts)
        if depth >= len(self.given):
            here = place()
            if here in self.been:
                return None
            self.been.add(here)
        self.counts.append(count)
        return self.given[depth] if depth < len(self.given) else 0

    def others(self) -> Iterator[tuple[int, ...]]:
        """The choices that were met for the first time, and not taken."""
        for depth in range(len(self.given), len(self.counts)):
            start = self.given + (0,) * (depth - len(self.given))
            yield from ((*start, other) for other in range(1, self.counts[depth]))


@dataclass(frozen=True)
class Dice:
    """Chooses at random."""

    random: Random

    def choose(self, count: int, _place: Callable[[], Hashable]) -> int:
        return self.random.randrange(count)


async def explore(run: Callable[[Chooser], Awaitable[object]], most: int) -> int:
    """Make every run that leads to another place, each from the beginning, but so many at most; how many these were."""
    been: set[Hashable] = set()
    waiting: list[tuple[int, ...]] = [()]
    runs = 0
    while waiting and runs < most:
        chooser = Prefix(waiting.pop(), been)
        await run(chooser)
        runs += 1
        waiting.extend(chooser.others())
    return runs
