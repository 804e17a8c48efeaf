"""What `make house` counts, and the bounds of how far calls travel."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from inspect import isabstract
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from allocator.tools import Recent, printable
from extender.cluster.timeline import View
from extender.tools.offload import at_once
from tests.house.calls import BOUNDS, travels
from tests.house.layers import contract_layers, floors
from tests.house.modules import PAGE, page
from tests.house.moves import Travel, traced
from tests.house.sizes import ROOT, Module, Size, by_folder, lines_of_code, size_of


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


# docs/reference/modules.md, which is made from the code.


def test_the_page_of_modules_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run `make docs-modules`, and commit the page with the change of the code"


def test_a_folder_has_its_first_line_and_a_line_for_each_module(tmp_path: Path) -> None:
    for path, docstring in {
        "allocator/__init__.py": "Decides.\n\nMore.",
        "allocator/b.py": "What `a | b` is.",
        "allocator/a.py": "A rule of all claims: it holds.",
        "allocator/c.py": "Losses: a pod lacks its claim. Each is counted.",
        "allocator/inner/__init__.py": "Inside.",
        "allocator/inner/__main__.py": "Starts.",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f'"""{docstring}"""\n')
    assert page(tmp_path).partition("\n## ")[2] == (
        "allocator/\n\nDecides.\n\n"
        "- [a.py](../../allocator/a.py) A rule of all claims.\n"
        "- [b.py](../../allocator/b.py) What `a | b` is.\n"
        "- [c.py](../../allocator/c.py) Losses: a pod lacks its claim.\n"
        "\n### allocator/inner/\n\nInside.\n"
    )


# The table of views in docs/architecture.md, which is held against the code.


def views() -> Iterator[Any]:
    """All views of the service."""
    for path in sorted((ROOT / "extender").rglob("*.py")):
        if re.search(r"import .*\bView\b", path.read_text()):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    yield from _below(View)


def _below(view: Any) -> Iterator[Any]:
    for each in view.__subclasses__():
        if not isabstract(each) and each.__module__.startswith("extender."):
            yield each
        yield from _below(each)


def row(view: Any) -> str:
    """The row of a view in the table."""
    path = view.__module__.removeprefix("extender.").replace(".", "/")
    topics = ", ".join(sorted(each.value[0] for each in view.topics))
    return f"| `{view.__name__}` (`{path}.py`) | {topics} | {view.bound} |"


def test_the_table_of_views_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| view | topics |")[2].partition("\n\n")[0].splitlines()[2:]
    assert sorted(table) == sorted(map(row, views()))
