"""Gangs whose pods may get more or less: optional requests, and alternatives of ``firstAvailable``."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.model.optional import OPTIONAL_REQUESTS
from tests.extender.plugins.gangs.scenes import Scene, member, members, nodes
from tests.kit.clusters import DRIVER, GPU, Object, local_slice, node, request
from tests.kit.objects.quotas import limited, quota

EXAMPLES: Final = int(os.environ.get("GANG_EXAMPLES", "25"))


def ways(name: str, *counts: int) -> Object:
    """A request for the first of some numbers of devices that is available."""
    each = [{"name": f"of-{n}", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": n} for n in counts]
    return {"name": name, "firstAvailable": each}


def optional(objects: Iterable[Object], *names: str) -> list[Object]:
    """The objects, in which claims have optional requests."""
    found = list(objects)
    for each in found:
        if each["kind"] == "ResourceClaim":
            each["metadata"]["annotations"] = {OPTIONAL_REQUESTS: ",".join(names)}
    return found


def devices(scene: Scene) -> list[int]:
    """How many devices each bound pod holds, by the names of the pods."""
    claims = scene.cluster.state.snapshot.claims.values()
    held = {each.claim.name: each.claim.allocation for each in claims}
    return [len(found.results) if (found := held[f"{name}-c"]) else 0 for name in sorted(scene.bound())]


TWO: Final = (request("gpu"), request("second"))


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        (optional(members("x", 9, *TWO), "second"), {1: 2, 2: 7}),
        (optional(members("x", 12, *TWO), "second"), {1: 8, 2: 4}),
        (optional(members("x", 16, *TWO), "second"), {1: 16}),
        (members("x", 5, ways("gpu", 4, 1)), {4: 3, 1: 2}),
        (members("x", 8, ways("gpu", 4, 1)), {4: 2, 1: 6}),
        (members("x", 3, ways("gpu", 8, 4, 2)), {8: 1, 4: 2}),
        (optional(members("x", 3, ways("gpu", 8, 4), request("second")), "second"), {4: 2, 5: 1}),
    ],
    ids=["9 with one optional", "12", "16", "5 with 4 or 1", "8 with 4 or 1", "3 with 8, 4 or 2", "both"],
)
async def test_a_gang_starts_with_less_where_there_is_not_enough_for_the_best(
    gang: Sequence[Object], expected: Mapping[int, int]
) -> None:
    scene = Scene(*nodes("ab", 8), *gang)
    await scene.run()
    assert Counter(devices(scene)) == expected


async def test_a_gang_starts_within_its_quota_with_the_least() -> None:
    scene = Scene(*nodes("ab", 8), quota(limited(devices=6)), *members("x", 4, ways("gpu", 4, 1)))
    await scene.run()
    assert devices(scene) == [1, 1, 1, 1]


async def test_the_oldest_gets_more_than_the_least_first() -> None:
    young, old = member("x0", "x", 2, ways("gpu", 2, 1)), member("x1", "x", 2, ways("gpu", 2, 1))
    old[0]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    scene = Scene(*nodes("a", 3), *young, *old)
    await scene.run()
    assert devices(scene) == [1, 2]


async def test_pods_that_share_a_claim_get_it_with_less() -> None:
    gang = members("x", 3, ways("gpu", 8, 1))
    for each in gang[0:4:2]:
        each["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "x0-c"}]
    scene = Scene(*nodes("a", 4), *gang)
    await scene.run()
    assert sorted(scene.bound()) == ["x0", "x1", "x2"]


async def test_shares_of_one_device_are_given_as_they_were_planned() -> None:
    part = [
        {"name": each, "deviceClassName": "gpu", "capacity": {"requests": {"memory": each}}} for each in ("40", "10")
    ]
    for each in part:
        each["name"] = f"of-{each['name']}"
    shared: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    gang = members("x", 5, {"name": "gpu", "firstAvailable": part})
    scene = Scene(GPU, node("a"), local_slice("a", 1, **shared), *gang)
    await scene.schedule()
    await scene.turns()
    for name in ("x4", "x3", "x2", "x1", "x0"):  # not in the order of the plan
        (there,) = scene.filter(name).passed
        assert await scene.bind(name, there) == ""
    claims = scene.cluster.state.snapshot.claims.values()
    held = sorted(r.request for each in claims if each.claim.allocation for r in each.claim.allocation.results)
    assert held == ["gpu/of-10"] * 4 + ["gpu/of-40"]


Way: TypeAlias = tuple[str, int]
"""The size of devices, and their number."""

Wish: TypeAlias = tuple[Sequence[Way], Sequence[Way]]
"""The alternatives of one request, and one optional request for each of further ways."""


@dataclass(frozen=True)
class World:
    """A gang, and nodes with devices of two sizes.

    Attributes:
        free: for each node the number of devices of each size.
        wishes: of each pod.
    """

    free: Sequence[Mapping[str, int]]
    wishes: Sequence[Wish]

    def objects(self) -> Iterator[Object]:
        yield GPU
        for name, counts in zip("abc", self.free, strict=False):
            yield node(name)
            sizes = [size for size, number in counts.items() for _ in range(number)]
            if sizes:
                raw = local_slice(name, len(sizes))
                for device, size in zip(raw["spec"]["devices"], sizes, strict=True):
                    device["attributes"] = {"size": {"string": size}}
                yield raw
        for number, (alternatives, more) in enumerate(self.wishes):
            first = {"name": "gpu", "firstAvailable": [_asked(f"way-{n}", w) for n, w in enumerate(alternatives)]}
            names = [f"more-{n}" for n in range(len(more))]
            further = [{"name": name, "exactly": _asked("", way)} for name, way in zip(names, more, strict=True)]
            yield from optional(member(f"x{number}", "x", len(self.wishes), first, *further), *names)

    def can_start(self) -> bool:
        """Whether some choice of one alternative and one node for each pod leaves no node short."""
        places = [[(at, way) for at in range(len(self.free)) for way in wish[0]] for wish in self.wishes]
        return any(self._suffices(chosen) for chosen in product(*places))

    def _suffices(self, chosen: Iterable[tuple[int, Way]]) -> bool:
        taken: Counter[tuple[int, str]] = Counter()
        for at, (size, number) in chosen:
            taken[at, size] += number
        return all(number <= self.free[at].get(size, 0) for (at, size), number in taken.items())

    def levels(self, scene: Scene) -> dict[int, tuple[int, int]]:
        """What each pod has: the number of its optional requests, and the preference of its alternative."""
        return {number: _level(served(scene, number)) for number in range(len(self.wishes))}

    def best(self, scene: Scene, number: int) -> tuple[int, int]:
        """The best that a pod could have, while all others keep what they have."""
        left = [Counter(counts) for counts in self.free]
        for other in range(len(self.wishes)):
            if other != number:
                at = "abc".index(scene.bound()[f"x{other}"])
                for name in served(scene, other):
                    size, count = self._way(other, name)
                    left[at][size] -= count
        return max(filter(None, (self._best_there(there, number) for there in left)))

    def _best_there(self, there: Mapping[str, int], number: int) -> tuple[int, int] | None:
        """What a pod gets of some devices: optional requests in their order, then the first alternative."""
        alternatives, more = self.wishes[number]
        choices = product(*[(True, False)] * len(more), range(len(alternatives)))
        for *extra, index in choices:
            if _fits(there, [alternatives[index], *(way for way, is_in in zip(more, extra, strict=True) if is_in)]):
                return sum(extra), -index
        return None

    def _way(self, number: int, name: str) -> Way:
        alternatives, more = self.wishes[number]
        kind, _, at = name.rpartition("-")
        return alternatives[int(at)] if kind == "gpu/way" else more[int(at)]


def _fits(there: Mapping[str, int], asked: Iterable[Way]) -> bool:
    wanted: Counter[str] = Counter()
    for size, number in asked:
        wanted[size] += number
    return all(there.get(size, 0) >= number for size, number in wanted.items())


def _level(names: Iterable[str]) -> tuple[int, int]:
    found = list(names)
    return len(found) - 1, -next(int(each.rpartition("-")[2]) for each in found if each.startswith("gpu/"))


def served(scene: Scene, number: int) -> set[str]:
    """The names of the requests for which a pod has devices."""
    claims = scene.cluster.state.snapshot.claims.values()
    (found,) = (each.claim.allocation for each in claims if each.claim.name == f"x{number}-c")
    return {each.request for each in found.results} if found else set()


def _asked(name: str, way: Way) -> Object:
    size, number = way
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].size == '{size}'"}}
    found = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": number, "selectors": [selector]}
    return {"name": name, **found} if name else found


WAYS: Final = st.tuples(st.sampled_from("ST"), st.integers(1, 3))
WISHES: Final = st.tuples(st.lists(WAYS, min_size=1, max_size=3), st.lists(WAYS, max_size=2))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    free = draw(
        st.lists(st.fixed_dictionaries({"S": st.integers(0, 4), "T": st.integers(0, 4)}), min_size=1, max_size=3)
    )
    kinds = draw(st.lists(WISHES, min_size=1, max_size=2))
    return World(free, [kinds[at % len(kinds)] for at in draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))])


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
async def test_a_gang_starts_if_its_least_has_a_place_and_gets_all_that_is_left(world: World) -> None:
    scene = Scene(*world.objects())
    await scene.run()
    assert len(scene.bound()) == (len(world.wishes) if world.can_start() else 0)
    if scene.bound():
        for number, level in world.levels(scene).items():
            assert level >= world.best(scene, number), f"x{number}"
