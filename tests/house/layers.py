"""The layers of a package: as many as its import contract has, and as many as its imports really climb."""

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Final

import grimp

from tests.house.sizes import ROOT

_BESIDE: Final = "|"
"""Stands between folders of one layer that do not import each other."""


def contract_layers(package: str) -> list[list[str]]:
    """Return the layers of the import contract over the whole package, the highest first; each with its folders.

    Raises:
        LookupError: pyproject.toml has no such contract.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract["containers"] == [package]:
            return [[each.strip() for each in layer.split(_BESIDE)] for layer in contract["layers"]]
    raise LookupError(f"no contract has the layers of {package}")


def floors(package: str) -> list[str]:
    """Return the longest chain of folders of the contract in which each one imports the next, the highest first."""
    placed = {folder for layer in contract_layers(package) for folder in layer}
    return list(_longest_chain({room: below for room, below in _imports(package).items() if room in placed}))


def _imports(package: str) -> Mapping[str, frozenset[str]]:
    """Return what each folder, or module that stands in no folder, imports of the others."""
    graph = grimp.build_graph(package, cache_dir=None)  # A cache takes a module that was moved for unchanged.
    rooms = {each: each.removeprefix(f"{package}.") for each in graph.find_children(package)}
    for room in rooms:
        graph.squash_module(room)
    return {
        name: frozenset(
            rooms[other] for other in graph.find_modules_directly_imported_by(room) if other in rooms and other != room
        )
        for room, name in rooms.items()
    }


def _longest_chain(imports: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    @cache
    def below(room: str) -> tuple[str, ...]:
        chains = [below(other) for other in sorted(imports[room])]
        return (room, *max(chains, key=len, default=()))

    return max((below(room) for room in sorted(imports)), key=len, default=())
