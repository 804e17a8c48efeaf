"""Exploring all orders: what is left out leads to no other place."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.extender.framework.bind.interleaving import (
    BrokenError,
    Chooser,
    Explored,
    Step,
    explore,
    explore_patiently,
    play,
)
from tests.kit import virtualtime

Access = tuple[str, str]
"""What a step does, "read" or "write", and to which cell."""

accesses = st.lists(st.tuples(st.sampled_from(["read", "write"]), st.sampled_from("xy")), max_size=3)


@dataclass
class Cells:
    """Tasks that read and write cells, and do what they do next with what they have read."""

    programs: dict[str, list[Access]]
    forbidden: Hashable = None
    cells: dict[str, int] = field(default_factory=lambda: dict.fromkeys("xy", 0))
    been: set[Hashable] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seen = dict.fromkeys(self.programs, (0, 0))

    def steps(self) -> list[Step]:
        return list(self._steps())

    def _steps(self) -> Iterator[Step]:
        for name, program in self.programs.items():
            done = self.seen[name][0]
            if done < len(program):
                verb, cell = program[done]
                touched = {"reads" if verb == "read" else "writes": frozenset(cell)}
                yield Step(f"{name}: {verb} {cell}", partial(self._do, name, verb, cell), name, **touched)

    def _do(self, name: str, verb: str, cell: str) -> None:
        done, seen = self.seen[name]
        if verb == "read":
            self.seen[name] = done + 1, hash((seen, self.cells[cell]))
        else:
            self.cells[cell] = hash((self.cells[cell], name, seen))
            self.seen[name] = done + 1, seen

    def place(self) -> Hashable:
        return (*self.cells.items(), *self.seen.items())

    async def check(self) -> None:
        self.been.add(self.place())
        assert self.place() != self.forbidden


def all_places(programs: dict[str, list[Access]]) -> set[Hashable]:
    """Those that any order leads to."""
    places: set[Hashable] = set()
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        chosen = waiting.pop()
        world = Cells(programs)
        for index in chosen:
            world.steps()[index].do()
        places.add(world.place())
        waiting += ((*chosen, index) for index in range(len(world.steps())))
    return places


def explored(programs: dict[str, list[Access]], interruptions: int | None = None) -> tuple[Explored, set[Hashable]]:
    been: set[Hashable] = set()

    async def run(chooser: Chooser) -> None:
        await play(Cells(programs, been=been), chooser)

    exploring = explore(run) if interruptions is None else explore_patiently(run, interruptions)
    return virtualtime.run(exploring), been


@given(st.fixed_dictionaries({"A": accesses, "B": accesses, "C": accesses.map(lambda each: each[:1])}))
def test_every_place_is_reached_to_which_any_order_leads(programs: dict[str, list[Access]]) -> None:
    found, been = explored(programs)
    assert been == all_places(programs)
    assert found.is_all


@given(st.fixed_dictionaries({"A": accesses, "B": accesses}))
def test_as_many_interruptions_as_there_are_steps_leave_no_place_out(programs: dict[str, list[Access]]) -> None:
    assert explored(programs, interruptions=6)[1] == all_places(programs)


def test_steps_that_commute_are_tried_in_one_order() -> None:
    programs = {"A": [("write", "x")] * 3, "B": [("write", "y")] * 3}
    found, been = explored(programs)
    assert len(been) == 16
    assert found.runs <= 4


@pytest.mark.parametrize(("interruptions", "places"), [(0, 8), (1, 9)])
def test_with_few_interruptions_few_places_are_reached(interruptions: int, places: int) -> None:
    """Without any: all of A's steps, then all of B's, or the other way round."""
    programs = {"A": [("write", "x")] * 2, "B": [("write", "y")] * 2}
    assert len(explored(programs, interruptions)[1]) == places


def test_what_does_not_hold_is_told_with_the_steps_that_led_there() -> None:
    programs = {"A": [("write", "x")], "B": [("read", "x"), ("write", "y")]}
    world = Cells(programs)
    for name in ("B", "A", "B"):
        next(each for each in world.steps() if each.by == name).do()

    async def run(chooser: Chooser) -> None:
        await play(Cells(programs, forbidden=world.place()), chooser)

    with pytest.raises(BrokenError, match=r"B: read x\n(.*\n)*B: write y"):
        virtualtime.run(explore(run))
