"""What `make house` counts, and the bounds of how far calls travel."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from textwrap import dedent

import pytest

from allocator.tools import Recent, printable
from extender.tools.offload import at_once
from tests.house.calls import BOUNDS, travels
from tests.house.layers import contract_layers, floors
from tests.house.moves import Travel, traced
from tests.house.sizes import Module, Size, by_folder, lines_of_code, size_of


@pytest.fixture(scope="module")
def found() -> dict[str, Travel]:
    return asyncio.run(travels())


@pytest.mark.parametrize("name", BOUNDS)
def test_a_call_enters_no_more_modules_than_before(name: str, found: dict[str, Travel]) -> None:
    travel, bound = found[name], BOUNDS[name]
    entered = "\n".join(travel.entered)
    assert travel.modules_of("extender") <= bound.extender, entered
    assert travel.modules_of("allocator") <= bound.allocator, entered


@pytest.mark.parametrize("name", BOUNDS)
def test_a_call_makes_no_more_moves_than_before(name: str, found: dict[str, Travel]) -> None:
    assert found[name].moves.total() <= BOUNDS[name].moves, found[name].moves.most_common()


def test_the_second_measurement_is_the_first(found: dict[str, Travel]) -> None:
    assert asyncio.run(travels()) == found


def moves(work: Callable[[], object]) -> Travel:
    with traced() as travel:
        work()
    return travel


def test_a_function_of_the_project_is_entered_and_called_from_outside() -> None:
    travel = moves(lambda: printable("a"))
    assert list(travel.entered) == ["allocator.tools.printable"]
    assert not travel.moves


def test_functions_of_libraries_are_no_callers() -> None:
    """`partial` and `sorted` are written in C, `contextmanager` in Python."""

    @contextmanager
    def library() -> Iterator[None]:
        printable("a")
        yield

    def call() -> None:
        with library():
            sorted(["b"], key=partial(printable))

    assert not moves(call).moves


def test_a_coroutine_counts_once_however_often_it_goes_on() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async def call() -> None:
        async for _ in numbers():
            await at_once(lambda: None)

    travel = moves(lambda: asyncio.run(call()))
    assert travel.entered == {"extender.tools.offload": None}


def test_a_generated_method_is_no_module() -> None:
    module = moves(lambda: Module("", 1, 1, is_init=False))
    assert module == Travel()
    assert "allocator.tools.recent" in moves(lambda: Recent(1)).entered


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings() -> None:
    text = """
        '''A docstring

        of three lines.'''
        # A comment
        TEXT = (  # and another one
            "text"
        )
        "A docstring of TEXT."
    """
    assert lines_of_code(dedent(text)) == 3


def test_folders_stand_in_the_order_of_their_lines() -> None:
    modules = [
        Module("a", 10, 5, is_init=False),
        Module("b", 50, 30, is_init=False),
        Module("b", 2, 1, is_init=True),
    ]
    assert by_folder(modules) == {"b": Size(2, 52, 31, 26, 0, 1), "a": Size(1, 10, 5, 10, 1, 0)}
    assert size_of(modules) == Size(3, 62, 36, 10, 1, 1)


@pytest.mark.parametrize("package", ["allocator", "extender"])
def test_the_longest_chain_of_imports_goes_down_the_layers(package: str) -> None:
    place = {folder: number for number, layer in enumerate(contract_layers(package)) for folder in layer}
    chain = [place[each] for each in floors(package)]
    assert len(chain) > 1
    assert all(above < below for above, below in pairwise(chain))
