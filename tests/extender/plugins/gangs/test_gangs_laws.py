"""Laws of gangs in random clusters: no gang in part unless its time was up, no device twice, a place for what fits."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.usage import FREE
from extender.cluster.consumers import claim_keys
from extender.cluster.indexes import Stage
from extender.cluster.snapshot import Snapshot
from extender.plugins.gangs.gang import Gang, gang_at, gang_refusal
from tests.extender.plugins.gangs.scenes import Replica, Scene, member
from tests.kit.clusters import DRIVER, GPU, Object, claim, local_slice, network_slice, node, pod, request
from tests.kit.servers.memory import Fault

EXAMPLES: Final = int(os.environ.get("GANG_EXAMPLES", "25"))
LARGE: Final = f"device.attributes['{DRIVER}'].large"
NODES: Final = "abc"


@dataclass(frozen=True)
class World:
    """Nodes with devices, gangs, pods that are in no gang, and what happens.

    Attributes:
        large: pool to whether each of its devices is large; every node reaches the pool "net".
        gangs: for each gang whether each of its pods needs a large device.
        singles: the same for pods that are in no gang.
        events: "ask" and the number of a pod, or what happens to the task.
    """

    large: dict[str, Sequence[bool]]
    gangs: Sequence[Sequence[bool]]
    singles: Sequence[bool]
    events: Sequence[tuple[str, int]]

    def objects(self) -> Iterator[Object]:
        yield GPU
        for name, sizes in self.large.items():
            if name in NODES:
                yield node(name)
            if sizes:
                raw = (local_slice if name in NODES else network_slice)(name, len(sizes))
                for device, is_large in zip(raw["spec"]["devices"], sizes, strict=True):
                    device["attributes"] = {"large": {"bool": is_large}}
                yield raw
        for number, wants in enumerate(self.gangs):
            for place, is_large in enumerate(wants):
                yield from member(f"{number}-{place}", f"g{number}", len(wants), wanted(is_large=is_large))
        for number, is_large in enumerate(self.singles):
            yield pod(f"s{number}", f"s{number}-c")
            yield claim(f"s{number}-c", wanted(is_large=is_large))

    def fits_alone(self, number: int) -> bool:
        """Whether an empty cluster has a device for each pod of a gang."""
        devices = [is_large for sizes in self.large.values() for is_large in sizes]
        wants = self.gangs[number]
        return any(
            all(device or not want for want, device in zip(wants, chosen, strict=True))
            for chosen in permutations(devices, len(wants))
        )


def wanted(*, is_large: bool) -> Object:
    return request(selectors=[LARGE] if is_large else [])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    large: dict[str, Sequence[bool]] = {name: draw(st.lists(st.booleans(), max_size=2)) for name in NODES}
    large["net"] = draw(st.lists(st.booleans(), max_size=1))
    gangs = draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=1, max_size=3))
    singles = draw(st.lists(st.booleans(), max_size=2))
    kinds = st.sampled_from(("ask", "ask", "ask", "tick", "tick", "restart", "late"))
    events = draw(st.lists(st.tuples(kinds, st.integers(0, 20)), max_size=20))
    return World(large, gangs, singles, events)


async def run(world: World, idle: Sequence[str] = ()) -> tuple[Scene, set[int]]:
    """What happens, and then time enough for everything that fits.

    Args:
        idle: what an idle replica does before each of the first writes: "", "hear", "turn" or both.

    Returns:
        The cluster, and the gangs of which some pods were not bound in time: others could take their devices.
    """
    scene, overdue = Scene(*world.objects()), set[int]()
    if idle:
        other = scene.replica()
        scene.transport.script("patch_status pods", *(Fault(before=partial(act, other, each)) for each in idle))
    for what, number in world.events:
        if what == "ask" and (names := scene.pending()):
            await scene.schedule([names[number % len(names)]])
        elif what == "tick":
            await scene.turns(1)
        elif what == "restart":
            scene.start()
        elif what == "late":
            overdue |= in_part(scene, world)
            await scene.turns(1, seconds=70)
        assert_no_device_twice(scene)
        assert_counted(scene.cluster.state.snapshot)
    await settle(scene)
    return scene, overdue


async def act(replica: Replica, what: str) -> None:
    if "hear" in what:
        replica.hear()
    if "turn" in what:
        await replica.task.tick()


def in_part(scene: Scene, world: World) -> set[int]:
    """The gangs of which some pods have a node, and others have none."""
    return {number for number, wants in enumerate(world.gangs) if 0 < len(scene.bound(f"g{number}")) < len(wants)}


async def settle(scene: Scene) -> None:
    for _ in range(5):
        await scene.schedule()
        await scene.turns(2, seconds=12)
    await scene.schedule()


def assert_no_device_twice(scene: Scene) -> None:
    pools = scene.cluster.state.snapshot.usage.pools
    assert all(usage.holders <= 1 for pool in pools.values() for usage in pool.values())


def assert_counted(snapshot: Snapshot) -> None:
    """What is counted pod by pod is what the pods say; and filter refuses a member unless its gang may run."""
    nominated = [each for each in snapshot.pods.values() if each.nominated_node and not each.node_name]
    kept = [device for each in nominated for device in set(each.kept.devices)]
    users = Counter(kept)
    assert {device: len(uids) for device, uids in snapshot.kept.users.items()} == users
    assert set(snapshot.kept.contested) == {d for d in kept if users[d] > 1 or snapshot.usage.device(d) != FREE}
    assert set(snapshot.kept.unnamed) == {each.uid for each in nominated if not each.kept.devices}
    for key in snapshot.gangs.members:
        gang = gang_at(key, snapshot)
        assert gang is not None
        stages = {Stage.BOUND: gang.bound, Stage.KEPT: gang.kept, Stage.FREE: gang.free}
        said = Counter({stage: len(pods) for stage, pods in stages.items() if pods})
        assert {part.stage: number for part, number in snapshot.gangs.numbers[key].items()} == said
        for each in gang.members:
            may_run = gang.is_placed or (gang.has_enough and bool(each.kept.node) and not any_lost(gang, snapshot))
            assert (gang_refusal(each, snapshot) is None) == may_run


def any_lost(gang: Gang, snapshot: Snapshot) -> bool:
    """Whether another claim holds a device that is kept for a member, or it is kept for two members."""
    devices = [device for each in gang.kept for device in each.kept.devices]
    holders = {
        each.device: key
        for key, claim in snapshot.claims.items()
        for held in snapshot.held_by(claim.claim.uid)
        for each in held.results
    }
    own = {device: claim_keys(each) for each in gang.kept for device in each.kept.devices}
    return len(set(devices)) < len(devices) or any(holders.get(d, key) != key for d, (key, *_) in own.items())


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
async def test_no_gang_runs_in_part(world: World) -> None:
    scene, overdue = await run(world)
    assert in_part(scene, world) <= overdue
    assert_no_device_twice(scene)


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), st.lists(st.sampled_from(("", "hear", "turn", "hear, turn")), min_size=1, max_size=12))
async def test_no_gang_runs_in_part_beside_an_idle_replica(world: World, idle: Sequence[str]) -> None:
    scene, overdue = await run(world, idle)
    assert in_part(scene, world) <= overdue
    assert_no_device_twice(scene)


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), st.integers(0, 2))
async def test_a_gang_that_fits_alone_gets_a_place_when_the_others_have_gone(world: World, number: int) -> None:
    number %= len(world.gangs)
    scene, _ = await run(world)
    others = [name for name in scene.cluster.state.snapshot.pods if not name.name.startswith(f"{number}-")]
    await scene.end(*(each.name for each in others))
    await settle(scene)
    expected = len(world.gangs[number]) if world.fits_alone(number) else 0
    assert len(scene.bound(f"g{number}")) == expected
