"""The laws of device preemption, over random clusters.

The choice is compared with all sets of pods on all nodes. Each set is tried on a cluster without its pods that is made
anew from the objects, so that the code under test makes no what-if for the comparison.
"""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Final

from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from allocator.model.features import ALL_FEATURES
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import fits
from extender.framework.filter import filter_nodes
from extender.plugins.preemption.choice import choose
from tests.extender.plugins.preemption.scenes import Scene
from tests.extender.plugins.preemption.worlds import NODES, Holder, World, worlds
from tests.kit import virtualtime
from tests.kit.clusters import Cluster, Object, parsed, snapshot_of, solver
from tests.kit.virtualtime import in_virtual_time

Devices = dict[str, set[str]]
"""The name of a pod to its devices, as driver/pool/device."""

EXAMPLES: Final = int(os.environ.get("PREEMPTION_EXAMPLES", "40"))
SOLVER: Final = replace(solver(), features=ALL_FEATURES)


# --- the choice ---------------------------------------------------------------------------------------------


def borrowed(evicted: Collection[int], world: World, name: str) -> set[int]:
    """Of holders that are evicted for a pod on a node, those that only give back what their namespace has borrowed."""
    if world.own is None:
        return set()
    held = {
        claim: len(each.devices)
        for claim, each in enumerate(world.holders)
        if each.may_borrow and not world.is_released(claim, name)
    }
    order = sorted(evicted, key=lambda number: (world.holders[number].priority, -world.holders[number].day, number))
    claims = dict.fromkeys(claim for number in order for claim in world.claims_of(number) if claim in held)
    left, back = sum(held.values()) - world.own, set[int]()
    for each in sorted(claims, key=held.__getitem__):
        back |= {each} if left > 0 else set()
        left -= held[each]
    counted = {number: [claim for claim in world.claims_of(number) if claim in held] for number in evicted}
    return {number for number, found in counted.items() if found and back.issuperset(found)}


def harm(evicted: Collection[int], world: World) -> tuple[int, ...]:
    """As `pickOneNodeForPreemption` of kube-scheduler compares victims."""
    if not evicted:
        return ()
    pods = [world.holders[number] for number in evicted]
    highest = max(each.priority for each in pods)
    oldest = min(each.day for each in pods if each.priority == highest)
    return highest, sum(each.priority + 2**31 for each in pods), len(pods), -oldest


def violations(evicted: Collection[int], world: World) -> int:
    """How many of the pods break a budget."""
    apps = Counter((world.holders[number].namespace, world.holders[number].app) for number in evicted)
    return sum(max(0, count - world.allowed.get(app, count)) for (_, app), count in apps.items())


def rank(evicted: Collection[int], world: World, name: str) -> tuple[Any, ...]:
    """Of victims on a node: the lowest rank is the best."""
    entitled = set(evicted) - borrowed(evicted, world, name)
    return violations(evicted, world), harm(entitled, world), harm(evicted, world), name


def best(asked: Pod, world: World, snapshot: Snapshot) -> tuple[Any, ...] | None:
    """The lowest rank of all nodes; None if no pod has to be evicted.

    On each node, borrowers are evicted if they suffice, and as few pods as possible.
    """
    pods = {number: found for number in range(len(world.holders)) if (found := snapshot.pod(f"uid-v{number}"))}
    able = [number for number, each in pods.items() if each.priority < asked.priority and not each.deleting]
    known: dict[frozenset[int], Snapshot] = {}

    def is_enough(evicted: Collection[int], name: str) -> bool:
        gone = frozenset((*world.departed(), *evicted))
        fork = known[gone] = known.get(gone) or snapshot_of(*world.objects(gone))
        return fits(asked, fork.nodes[name], fork, SOLVER)

    if any(is_enough((), name) for name in NODES):
        return None
    options: list[tuple[Any, ...]] = []
    for name in NODES:
        near = [number for number in able if world.near(number, name)]
        first = [number for number in near if number in borrowed(near, world, name) and not violations([number], world)]
        for candidates in (first, near):
            sets = [each for size in range(1, 1 + len(candidates)) for each in combinations(candidates, size)]
            enough = [each for each in sets if is_enough(each, name)]
            if enough:
                options.append(min(rank(each, world, name) for each in enough if len(each) == len(enough[0])))
                break
    return min(options, default=None)


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
def test_the_choice_is_the_best_of_all_sets_of_pods_on_all_nodes(world: World) -> None:
    snapshot = snapshot_of(*world.objects())
    asked = parsed(next(each for each in world.objects() if each["metadata"]["name"] == "p0"))
    assume(not any(fits(asked, each, snapshot, SOLVER) for each in snapshot.nodes.values()))
    found = choose(asked, NODES, snapshot, SOLVER)
    wanted = best(asked, world, snapshot)
    event(f"victims: {wanted and wanted[2][2]}, not borrowed: {wanted and len(wanted[1]) and wanted[1][2]}")
    if found is None or not found.victims:
        assert wanted is None
    else:
        numbers = [int(each.name.removeprefix("v")) for each in found.victims]
        assert rank(numbers, world, found.node.name) == wanted
        assert found.violations == wanted[0]


# --- from the rejected pod to the bound one -----------------------------------------------------------------


def held(snapshot: Snapshot) -> Devices:
    """The devices that each pod holds."""
    found = Devices()
    for each in snapshot.claims.values():
        results = each.claim.allocation.results if each.claim.allocation else ()
        for user in each.claim.reserved_for:
            found.setdefault(user.name, set()).update(str(result.device) for result in results)
    return found


async def preempted(scene: Scene, waiting: Sequence[str]) -> Devices:
    """A scheduler tries pods, the most important first, until nothing changes; victims terminate in their time.

    Returns:
        The devices that each pod has held last.
    """
    devices = Devices()
    for _ in range(2 * len(waiting) + 2):
        for name in waiting:
            if scene.is_pending(name) and (passed := scene.filter(name).passed):
                assert await scene.bind(name, passed[0]) == ""
        devices |= held(scene.cluster.state.snapshot)
        await scene.turns()
        await scene.terminate()
    await scene.turns()
    return devices


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(waiting=4))
def test_a_pod_is_evicted_only_for_a_pod_of_higher_priority_and_for_one_that_waits_alone_not_in_vain(
    world: World,
) -> None:
    priorities = {f"v{number}": each.priority for number, each in enumerate(world.holders)}
    priorities |= {f"p{number}": priority for number, (_, _, priority) in enumerate(world.others)}

    async def main() -> None:
        scene = Scene(Cluster.of(*map(_slow, world.objects())))
        order = sorted(range(len(world.others)), key=lambda number: (-world.others[number][2], number))
        devices = await preempted(scene, [f"p{number}" for number in order])
        event(f"victims: {len(scene.told)}")
        preemptors = scene.preemptors
        assert all(priorities[victim] < priorities[preemptor] for victim, preemptor in preemptors.items())
        assert len(preemptors) == len(scene.told) == scene.counted("preemption_victims_total")
        alive = {each.name for each in scene.cluster.state.snapshot.pods.values()}
        assert priorities.keys() - alive == {*preemptors, *(f"v{number}" for number in world.departed())}
        if len(world.others) == 1:
            in_use = held(scene.cluster.state.snapshot)
            assert all(in_use[preemptor] & devices[victim] for victim, preemptor in preemptors.items())
            assert scene.counted("preemption_victims_in_vain_total") == 0

    virtualtime.run(main())


@dataclass(frozen=True)
class Round:
    """What happens before the task has its turns.

    Attributes:
        tried: numbers of the pods that a scheduler tries, in this order.
        ending: numbers of the holders that come to their end, if they are terminating.
        leaving: numbers of the holders that end by themselves after the pods were tried.
    """

    tried: Sequence[int]
    ending: set[int]
    leaving: set[int] = field(default_factory=set)


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[Round]]:
    """Up to four pods wait; they are tried in any order, some for the first time when others have been evicted for."""
    world = draw(worlds(waiting=4, departing=False))
    tried = st.lists(st.integers(0, len(world.others) - 1), unique=True)
    some = st.sets(st.integers(0, len(world.holders) - 1)) if world.holders else st.just(set[int]())
    few = st.one_of(st.just(set[int]()), some)
    return world, draw(st.lists(st.builds(Round, tried, some, few), max_size=6))


def lucky_pod(scene: Scene) -> str:
    """The name of the only pod that waits, if it fits without evictions; empty if there is none."""
    snapshot = scene.cluster.state.snapshot
    waiting = [each for each in snapshot.pods.values() if each.is_pending]
    is_lucky = len(waiting) == 1 and bool(filter_nodes(waiting[0], NODES, snapshot, SOLVER).passed)
    return waiting[0].name if is_lucky else ""


async def played(scene: Scene, world: World, rounds: Sequence[Round]) -> tuple[Devices, Devices]:
    """The rounds, and then rounds in which all is tried and ends, until nothing changes.

    Returns:
        The devices that each pod has held last; and those that were kept for each pod.
    """
    devices, kept = held(scene.cluster.state.snapshot), Devices()
    every = Round(range(len(world.others)), set(range(len(world.holders))))
    for each in (*rounds, *(every,) * (2 * len(world.others) + 2)):
        await scene.terminate({f"v{number}" for number in each.ending})
        for name in (f"p{number}" for number in each.tried):
            if scene.is_pending(name) and (passed := scene.filter(name).passed):
                assert await scene.bind(name, passed[-1]) == ""
        devices |= held(scene.cluster.state.snapshot)
        await scene.end({f"v{number}" for number in each.leaving})
        told, lucky = len(scene.told), lucky_pod(scene)
        await scene.turns()
        assert not lucky or len(scene.told) == told, f"{scene.told[told:]}, and {lucky} fits without evictions"
        for waiting in scene.cluster.state.snapshot.pods.values():
            kept.setdefault(waiting.name, set()).update(map(str, waiting.kept.devices))
    return devices, kept


OVERTAKEN_HOLDERS = [
    Holder("a", ("a/gpu-0",), 0, -5, 1),
    Holder("b", ("b/gpu-0",), 1, -5, 1),
    Holder("a", ("net/gpu-0",), 2, -5, 1),
]
OVERTAKEN = World(
    {"a": [False], "b": [False], "net": [False]},
    OVERTAKEN_HOLDERS,
    {},
    [(1, False, 4), (1, False, 1), (1, False, 1), (1, False, 3)],
)
"""A pod that has lost what was kept for it has a higher priority than one that waits for its own."""

LEFTOVER = World(
    {"a": [False, False], "b": [False, False], "net": [False]},
    [
        Holder("a", ("a/gpu-1",), 0, -5, 1),
        Holder("b", ("b/gpu-0", "b/gpu-1"), 1, -5, 1),
        Holder("a", ("net/gpu-0",), 2, -5, 1),
    ],
    {},
    [(1, False, 1)] * 4,
)
"""A victim has more devices than its pod needs."""


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories())
@example((OVERTAKEN, [Round([3, 1], set()), Round([0, 1], {0})]))
@example((LEFTOVER, [Round([1, 0, 2, 3], set()), Round([], {1}), Round([0], set())]))
@in_virtual_time
async def test_each_pod_has_the_devices_of_its_victims_unless_a_pod_of_higher_priority_has_what_was_kept(
    history: tuple[World, list[Round]],
) -> None:
    world, rounds = history
    scene = Scene(Cluster.of(*map(_slow, world.objects())))
    devices, kept = await played(scene, world, rounds)
    priorities = {f"p{number}": priority for number, (_, _, priority) in enumerate(world.others)}
    victims: dict[str, list[str]] = {}
    for victim, preemptor in scene.preemptors.items():
        victims.setdefault(preemptor, []).append(victim)
    event(f"pods with victims: {len(victims)}")
    for preemptor, evicted in victims.items():
        higher = (name for name, priority in priorities.items() if priority > priorities[preemptor])
        is_overtaken = any(devices.get(name, set()) & kept[preemptor] for name in higher)
        event(f"overtaken: {is_overtaken}")
        is_served = all(devices.get(preemptor, set()) & devices[victim] for victim in evicted)
        assert is_overtaken or is_served, f"{evicted} for {preemptor}"
    assert scene.counted("preemption_victims_in_vain_total") == 0
    pending = [name for name in priorities if scene.is_pending(name)]
    end = scene.cluster.state.snapshot
    assert not [name for name in pending if choose(scene.known(name), NODES, end, SOLVER)], "eviction would help"


def _slow(raw: Object) -> Object:
    """Pods that run take their time to terminate."""
    if raw["kind"] == "Pod" and raw["spec"].get("nodeName"):
        raw["metadata"]["finalizers"] = ["example.com/slow"]
    return raw
