"""Patterns: how many pods of each kind fit on a part of a machine together.

A part is what no way to serve a pod connects with the rest of the machine, such as one GPU with its partitions. Parts
that look the same have the same patterns, so a bound has to count patterns, not to tell nodes apart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import le
from typing import TypeAlias

from loadtest.packing.own.scenario import Machine, PodKind
from loadtest.packing.own.ways import Resource, Take, supply, ways

Pattern: TypeAlias = tuple[int, ...]
"""The number of pods of each kind."""

_Way: TypeAlias = tuple[tuple[int, int], ...]
"""Positions of amounts of a part, and what is taken of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of a machine has, and the ways in which it serves each kind of pod, without names."""

    amounts: tuple[int, ...]
    ways: tuple[tuple[_Way, ...], ...]


def parts(machine: Machine, kinds: Sequence[PodKind]) -> Counter[Part]:
    """The parts of a machine, and how often it has each."""
    has = supply(machine)
    of_kinds = [ways(machine, kind) for kind in kinds]
    found: Counter[Part] = Counter()
    takes = [take for of_kind in of_kinds for take in of_kind]
    for resources in _connected(has, takes):
        positions = {resource: position for position, resource in enumerate(resources)}
        of_part = Part(
            tuple([has[each] for each in resources]), tuple([_of_part(each, positions) for each in of_kinds])
        )
        if any(of_part.ways):
            found[of_part] += 1
    return found


def patterns(part: Part) -> tuple[Pattern, ...]:
    """The largest patterns of a part: a pattern fits exactly if it is within one of them."""
    empty = (part.amounts, (0,) * len(part.ways))
    seen, todo = {empty}, [empty]
    while todo:
        left, counts = todo.pop()
        for number, of_kind in enumerate(part.ways):
            more = (*counts[:number], counts[number] + 1, *counts[number + 1 :])
            for way in of_kind:
                rest = _without(left, way)
                if rest is not None and (rest, more) not in seen:
                    seen.add((rest, more))
                    todo.append((rest, more))
    return _largest({counts for _, counts in seen})


def _without(left: tuple[int, ...], way: _Way) -> tuple[int, ...] | None:
    """What a way leaves; None: there is not enough."""
    rest = list(left)
    for position, amount in way:
        rest[position] -= amount
        if rest[position] < 0:
            return None
    return tuple(rest)


def _largest(found: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """The patterns that are not within another one."""
    largest: list[Pattern] = []
    for each in sorted(found, key=sum, reverse=True):
        if not any(all(map(le, each, other)) for other in largest):
            largest.append(each)
    return tuple(largest)


def _connected(has: Take, takes: Iterable[Take]) -> list[list[Resource]]:
    """The resources that ways connect, each group in the order of the machine."""
    group = {resource: [resource] for resource in has}
    for take in takes:
        first = group[next(iter(take))]
        for resource in take:
            if (other := group[resource]) is not first:
                first += other
                group.update(dict.fromkeys(other, first))
    order = {resource: position for position, resource in enumerate(has)}
    return [sorted(each, key=order.__getitem__) for each in {id(each): each for each in group.values()}.values()]


def _of_part(takes: Iterable[Take], positions: Mapping[Resource, int]) -> tuple[_Way, ...]:
    """The ways within a part."""
    inside = (take for take in takes if take.keys() <= positions.keys())
    return tuple(sorted(tuple(sorted((positions[each], amount) for each, amount in take.items())) for take in inside))
