"""Prints the size of the house: lines and modules by folder, layers, and how far calls travel.

``python -m tests.house``; ``--call NAME`` prints the way of one call instead: the modules in the order in which it
enters them, and its moves, the most frequent ones first. `tests.house.moves` says what counts.
"""

import argparse
import asyncio
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from extender.tools.logs import log_quietly
from tests.house.calls import BOUNDS, travels
from tests.house.layers import contract_layers, floors
from tests.house.moves import Travel
from tests.house.sizes import SMALL, Size, by_folder, modules_of, size_of

_WIDTH = 140
"""Of what is printed, in characters: the same into a file as on a terminal."""


def sizes(package: str) -> Table:
    """Return a row for each folder of a package, and one for all."""
    few = f"under {SMALL} of code"
    columns = ("folder", "modules", "lines", "code", "median", few, "and __init__")
    table = Table(*columns, title=f"{package}/", title_justify="left")
    modules = modules_of(package)
    for folder, size in by_folder(modules).items():
        table.add_row(folder or "(beside the folders)", *_figures(size))
    table.add_section()
    table.add_row("all", *_figures(size_of(modules)))
    return table


def _figures(size: Size) -> Iterator[str]:
    for figure in (size.modules, size.lines, size.code, size.median, size.small, size.small_inits):
        yield f"{figure:,}"


def layers(package: str) -> str:
    """Return how many layers the import contract has, and the longest chain of imports."""
    chain = floors(package)
    return (
        f"{package}: {len(contract_layers(package))} layers in the import contract; the longest chain of imports has "
        f"{len(chain)} floors: {' > '.join(chain)}"
    )


def calls(found: Mapping[str, Travel]) -> Table:
    """Return a row for each traced call, beside its bound and its goal."""
    columns = ("call", "modules of extender", "of allocator", "moves", "bound", "goal")
    table = Table(*columns, title="calls", title_justify="left")
    for name, travel in found.items():
        bound = BOUNDS[name]
        figures = (travel.modules_of("extender"), travel.modules_of("allocator"), travel.moves.total())
        allowed = f"{bound.extender} + {bound.allocator}, {bound.moves}"
        table.add_row(name, *map(str, figures), allowed, bound.goal)
    return table


def way(name: str, travel: Travel) -> Iterator[str]:
    """Yield the lines about one call."""
    yield f"{name}: {len(travel.entered)} modules, {travel.moves.total()} moves"
    yield from (f"{number:4} {module}" for number, module in enumerate(travel.entered, 1))
    yield "moves"
    for (caller, callee), times in sorted(travel.moves.items(), key=lambda pair: (-pair[1], pair[0])):
        yield f"{times:4} {caller} > {callee}"


def main() -> None:
    """Print all of it, or the way of one call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--call", choices=BOUNDS, help="print the way of this call")
    chosen = parser.parse_args().call
    log_quietly()
    console = Console(width=_WIDTH, highlight=False)
    found = asyncio.run(travels())
    if chosen:
        console.print("\n".join(way(chosen, found[chosen])), markup=False)
        return
    for package in ("extender", "allocator", "tests"):
        console.print(sizes(package))
    for package in ("extender", "allocator"):
        console.print(layers(package))
    console.print(calls(found))


if __name__ == "__main__":
    main()
