"""Every order in which tasks can take their steps: tasks stop before each step, and a choice says who goes on.

A run is deterministic but for its choices, so a prefix of choices leads to the same place in every run, and the other
choices are tried from there. What keeps the runs few enough to make them all leaves out no place:

- Two runs that have led to the same place have the same future. The place is told by what the world is like and by
  what each participant has seen. Places are compared by hashes of 64 bits: that two of a million have the same one has
  a probability of one in ten millions.
- Where two steps commute, one order of them is enough, for both lead to the same place (sleep sets with remembered
  places: Godefroid, LNCS 1032, chapter 5). A step that was tried first sleeps in the runs that try another one, until
  a step is taken with which it does not commute. A place that is met again with fewer steps asleep is gone on from with
  those that slept whenever it was met before. Runs have no cycles, as each step adds to what was seen.

If there are too many orders, only orders with a limited number of interruptions of one who could go on are tried
(CHESS: Musuvathi and Qadeer, PLDI 2007). Most mistakes need few interruptions.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from tests.kit import virtualtime

QUIET_SECONDS = 1e-6
"""Virtual seconds between two steps: they pass when all tasks have stopped."""


@dataclass(frozen=True)
class Step:
    """Something that can be done next.

    Attributes:
        name: says what it is, to people.
        do: does it; what follows from it runs until everybody has stopped again.
        by: who does it; empty for what comes from outside.
        reads, writes: parts of the world. Two steps commute if neither writes what the other reads or writes. Then both
            orders lead to the same place, and neither step makes the other impossible.
    """

    name: str
    do: Callable[[], None]
    by: str = ""
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def commutes(self, other: "Step") -> bool:
        """Which one comes first does not matter."""
        is_apart = self.by and other.by and self.by != other.by
        return bool(is_apart) and not (self.writes & (other.reads | other.writes) or other.writes & self.reads)


class Chooser(Protocol):
    """Chooses the next step."""

    @property
    def is_known(self) -> bool:
        """Another run has been where this one is."""
        ...

    def choose(self, steps: Sequence[Step], place: Callable[[], Hashable]) -> int | None:
        """Which one of the steps; None ends the run.

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
    """Take steps until none is left, or until the chooser ends the run. Returns the names of the steps.

    Raises:
        BrokenError: `World.check` has failed.
    """
    taken: list[str] = []
    while True:
        await virtualtime.elapse(QUIET_SECONDS)
        try:
            if not chooser.is_known:
                await world.check()
        except AssertionError as error:
            raise BrokenError(taken, str(error)) from error
        steps = world.steps()
        chosen = chooser.choose(steps, world.place) if steps else None
        if chosen is None:
            return taken
        taken.append(steps[chosen].name)
        steps[chosen].do()


class BrokenError(AssertionError):
    """Something does not hold; the text has the steps that led there."""

    def __init__(self, taken: list[str], message: str) -> None:
        super().__init__("\n".join(("after", *taken, message)))


Sleeping: TypeAlias = Mapping[str, Step]
"""Steps, by name, that a run need not take: another run takes them first and goes through the same places."""


class Lead(NamedTuple):
    """The beginning of a run: the choices to follow, and the steps that sleep afterwards."""

    choices: tuple[int, ...]
    sleeping: Sleeping


@dataclass
class Thrifty:
    """Follows a lead, then takes the first step that no other run takes at the same place; ends where there is none.

    Attributes:
        slept: by place, the steps that no run has taken there.
        others: leads to what could have been done otherwise.
    """

    lead: Lead
    slept: dict[Hashable, frozenset[str]]
    others: list[Lead] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chosen: list[int] = []
        self._sleeping = self.lead.sleeping

    @property
    def is_known(self) -> bool:
        return len(self._chosen) < len(self.lead.choices)

    def choose(self, steps: Sequence[Step], place: Callable[[], Hashable]) -> int | None:
        if not self.is_known:
            return self._find(steps, place())
        self._chosen.append(self.lead.choices[len(self._chosen)])
        return self._chosen[-1]

    def _find(self, steps: Sequence[Step], here: Hashable) -> int | None:
        before = self.slept.get(here, frozenset(each.name for each in steps))
        now = self.slept[here] = before & self._sleeping.keys()
        sleeping = {name: step for name, step in self._sleeping.items() if name in now}
        leads = []
        for index, step in enumerate(steps):
            if step.name in before - now:
                after = {name: each for name, each in sleeping.items() if each.commutes(step)}
                leads.append(Lead((*self._chosen, index), after))
                sleeping[step.name] = step
        if not leads:
            return None
        self.others += leads[1:]
        self._chosen.append(leads[0].choices[-1])
        self._sleeping = leads[0].sleeping
        return self._chosen[-1]


@dataclass
class Patient:
    """Follows choices, then takes the first steps; ends where a run has been with as few interruptions.

    Attributes:
        choices: to follow.
        fewest: by place and by who did the last step, the fewest interruptions that led there.
        most: interruptions.
        others: choices that lead to what could have been done otherwise.
    """

    choices: tuple[int, ...]
    fewest: dict[Hashable, int]
    most: int
    others: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chosen: list[int] = []
        self._last = ""
        self._interruptions = 0

    @property
    def is_known(self) -> bool:
        return len(self._chosen) < len(self.choices)

    def choose(self, steps: Sequence[Step], place: Callable[[], Hashable]) -> int | None:
        if self.is_known:
            return self._take(steps, self.choices[len(self._chosen)])
        here = place(), self._last
        if self.fewest.get(here, self.most + 1) <= self._interruptions:
            return None
        self.fewest[here] = self._interruptions
        left = self.most - self._interruptions
        allowed = [index for index in range(len(steps)) if self._interrupts(steps, index) <= left]
        self.others += ((*self._chosen, index) for index in allowed[1:])
        return self._take(steps, allowed[0])

    def _take(self, steps: Sequence[Step], index: int) -> int:
        self._interruptions += self._interrupts(steps, index)
        self._last = steps[index].by or self._last
        self._chosen.append(index)
        return index

    def _interrupts(self, steps: Sequence[Step], index: int) -> bool:
        """Somebody else does it, while who did the last step could go on."""
        return steps[index].by not in {"", self._last} and any(each.by == self._last for each in steps)


@dataclass(frozen=True)
class Dice:
    """Chooses at random."""

    random: Random
    is_known: bool = False

    def choose(self, steps: Sequence[Step], _place: Callable[[], Hashable]) -> int:
        return self.random.randrange(len(steps))


@dataclass(frozen=True)
class Explored:
    """What `explore` has tried.

    Attributes:
        runs: the number of runs.
        places: the number of places that the runs have led to.
        is_all: a run can reach no other places.
    """

    runs: int
    places: int
    is_all: bool


Run: TypeAlias = Callable[[Chooser], Awaitable[object]]


async def explore(run: Run, most: int | None = None) -> Explored:
    """Make runs, each from the beginning, until all reachable places were reached, or until ``most`` runs."""
    slept: dict[Hashable, frozenset[str]] = {}
    waiting = [Lead((), {})]
    runs = 0
    while waiting and (most is None or runs < most):
        chooser = Thrifty(waiting.pop(), slept)
        await run(chooser)
        runs += 1
        waiting += chooser.others
    return Explored(runs, len(slept), not waiting)


async def explore_patiently(run: Run, interruptions: int, most: int | None = None) -> Explored:
    """The same with every place to which a run leads that has so few interruptions."""
    fewest: dict[Hashable, int] = {}
    waiting: list[tuple[int, ...]] = [()]
    runs = 0
    while waiting and (most is None or runs < most):
        chooser = Patient(waiting.pop(), fewest, interruptions)
        await run(chooser)
        runs += 1
        waiting += chooser.others
    return Explored(runs, len(fewest), not waiting)
