"""The laws of device preemption, over random clusters.

The choice is compared with all sets of pods on all nodes. Each set is tried on a cluster without its pods that is made
anew from the objects, so that the code under test makes no what-if for the comparison.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from allocator.model.features import ALL_FEATURES
from extender.pods.case import fits
from extender.preemption.choice import choose
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot
from tests.extender.preempting import Scene
from tests.kit import virtualtime
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    budget,
    claim,
    local_slice,
    network_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.objects.parts import api_object

Devices = dict[str, set[str]]
"""The name of a pod to its devices, as driver/pool/device."""

EXAMPLES: Final = int(os.environ.get("PREEMPTION_EXAMPLES", "40"))
NODES: Final = ("a", "b")
LARGE: Final = f"device.attributes['{DRIVER}'].large"
FOREIGN: Final = {"apiGroup": "example.com", "resource": "experiments", "name": "x", "uid": "uid-x"}
SOLVER: Final = replace(solver(), features=ALL_FEATURES)


@dataclass(frozen=True)
class Holder:
    """A pod that runs.

    Attributes:
        devices: it holds, as pool/device.
        shares_with: the number of another pod that uses its claim, too; its own number if there is none.
        priority: any priority.
        day: when it was made and when it started; of two pods the later one goes first.
        app: selected by a budget.
        deleting: it is terminating.
        is_foreign: its claim is reserved for something that is no pod, too.
        may_borrow: its namespace has a quota that may borrow.
    """

    node: str
    devices: tuple[str, ...]
    shares_with: int
    priority: int
    day: int
    app: str = ""
    deleting: bool = False
    is_foreign: bool = False
    may_borrow: bool = False

    @property
    def namespace(self) -> str:
        return "team" if self.may_borrow else "ns"


@dataclass(frozen=True)
class World:
    """Two nodes with devices of their own and a pool that both reach, and the pods that hold some of the devices.

    Attributes:
        large: for each node, and for the pool of both, whether each device is large.
        holders: the pods.
        allowed: app to how many of its pods may be evicted.
        others: pods that wait: the number of devices, whether they have to be large, and the priority.
        own: the devices of the quota of the pods that may borrow; None: there is no quota.
    """

    large: dict[str, Sequence[bool]]
    holders: Sequence[Holder]
    allowed: dict[str, int]
    others: Sequence[tuple[int, bool, int]]
    own: int | None = None

    def objects(self, gone: Iterable[int] = ()) -> Iterator[Object]:
        """The objects, once some of the holders have gone and controllers have released their claims."""
        left = {number: each for number, each in enumerate(self.holders) if number not in gone}
        yield GPU
        for name in NODES:
            yield from (node(name), _pool(local_slice(name, len(self.large[name])), self.large[name]))
        if self.large["net"]:
            yield _pool(network_slice("net", len(self.large["net"])), self.large["net"])
        for app, allowed in self.allowed.items():
            yield from (_within(namespace, budget(app, {"app": app}, allowed)) for namespace in ("ns", "team"))
        if self.own is not None:
            limit = {"name": "gpu", "deviceClassName": "gpu", "devices": self.own}
            spec = {"limits": [limit], "cohort": "all", "borrowing": True}
            yield api_object("DeviceQuota", "quota", namespace="team", spec=spec)
        for number, each in left.items():
            claims = [f"v{n}-c" for n in self.claims_of(number)]
            yield _within(each.namespace, _running(f"v{number}", each, claims))
        for number, each in enumerate(self.holders):
            users = [f"v{n}" for n in self.users_of(number) if n in left]
            yield _within(each.namespace, _claimed(f"v{number}-c", each, users))
        for number, (count, is_large, priority) in enumerate(self.others):
            selectors = [LARGE] if is_large else []
            name = f"p{number}"
            yield claim(f"{name}-c", request(count=count, selectors=selectors))
            yield pod(name, f"{name}-c", priority=priority)

    def users_of(self, claim: int) -> Sequence[int]:
        """The holders that use the claim of a holder."""
        return tuple(dict.fromkeys((claim, self.holders[claim].shares_with)))

    def claims_of(self, number: int) -> Sequence[int]:
        """The holders whose claims a holder uses."""
        return number, *(n for n, each in enumerate(self.holders) if n != number == each.shares_with)

    def near(self, number: int, name: str) -> bool:
        """Whether a node reaches a device that a holder uses."""
        pools = {each.partition("/")[0] for claim in self.claims_of(number) for each in self.holders[claim].devices}
        return not pools.isdisjoint((name, "net"))

    def is_released(self, claim: int, name: str) -> bool:
        """Whether the claim of a holder is free once the pods near a node that are terminating have gone."""
        users = self.users_of(claim)
        is_near = self.holders[claim].devices[0].startswith((name, "net")) or all(self.near(n, name) for n in users)
        return is_near and self.departed().issuperset(users) and not self.holders[claim].is_foreign

    def departed(self) -> set[int]:
        """The holders that are terminating."""
        return {number for number, each in enumerate(self.holders) if each.deleting}


def _within(namespace: str, raw: Object) -> Object:
    raw["metadata"]["namespace"] = namespace
    return raw


def _pool(raw: Object, large: Sequence[bool]) -> Object:
    for device, is_large in zip(raw["spec"]["devices"], large, strict=True):
        device["attributes"] = {"large": {"bool": is_large}}
    return raw


def _running(name: str, holder: Holder, claims: Sequence[str]) -> Object:
    time, labels = f"2026-01-0{holder.day}T00:00:00Z", {"app": holder.app}
    more: dict[str, Any] = {"labels": labels, "created": time, "deleting": holder.deleting}
    raw = pod(name, *claims, on=holder.node, priority=holder.priority, **more)
    raw["status"]["startTime"] = time
    return raw


def _claimed(name: str, holder: Holder, users: Sequence[str]) -> Object:
    if not users and not holder.is_foreign:
        return claim(name)
    is_local = all(not each.startswith("net") for each in holder.devices)
    raw = claim(name, allocated=holder.devices, at=holder.node if is_local else "", users=users)
    raw["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    raw["status"].setdefault("reservedFor", []).extend([FOREIGN] if holder.is_foreign else [])
    return raw


@st.composite
def worlds(draw: st.DrawFn, waiting: int = 1, *, departing: bool = True) -> World:
    """Up to so many pods wait; departing: some holders may be terminating from the start."""
    large: dict[str, Sequence[bool]] = {name: draw(st.lists(st.booleans(), min_size=1, max_size=2)) for name in NODES}
    large["net"] = draw(st.lists(st.booleans(), max_size=1))
    holders: list[Holder] = []
    for name in (*NODES, "net"):
        devices = [f"{name}/gpu-{index}" for index in range(len(large[name]))]
        if len(devices) == 2 and draw(st.integers(0, 4)) == 0:
            groups = [tuple(devices)]
        else:
            groups = [(each,) for each in devices if draw(st.integers(0, 5))]
        for group in groups:
            number = len(holders)
            on = draw(st.sampled_from(NODES)) if name == "net" else name
            mates = [n for n, each in enumerate(holders) if each.node == on]
            shares_with = draw(st.sampled_from((number, number, *mates)))
            rare = st.sampled_from((False,) * 9 + (True,))
            may_borrow = draw(st.booleans()) if shares_with == number else holders[shares_with].may_borrow
            holders.append(
                Holder(
                    on,
                    group,
                    shares_with,
                    draw(st.sampled_from((-5, 0, 0, 1, 1, 2, 3))),
                    draw(st.integers(1, 2)),
                    draw(st.sampled_from(("", "db"))),
                    departing and draw(rare),
                    draw(rare),
                    may_borrow,
                )
            )
    allowed = {"db": draw(st.integers(0, 1))} if draw(st.booleans()) else {}
    others = st.tuples(st.sampled_from((1, 1, 2)), st.booleans(), st.integers(1, 4))
    own = draw(st.sampled_from((None, 0, 1, 2)))
    return World(large, holders, allowed, draw(st.lists(others, min_size=1, max_size=waiting)), own)


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
    """The lowest rank of all nodes; None if nobody is to be evicted.

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


def check(scene: Scene, world: World, devices: Devices) -> None:
    """Each victim had a lower priority than its preemptor. A pod that waits alone has its victims' devices now."""
    priorities = {f"v{number}": each.priority for number, each in enumerate(world.holders)}
    priorities |= {f"p{number}": priority for number, (_, _, priority) in enumerate(world.others)}
    evicted = [victim for victim, _ in scene.told]
    in_use = held(scene.cluster.state.snapshot)
    for victim, text in scene.told:
        preemptor = text.split()[3].removeprefix("ns/")
        assert priorities[victim] < priorities[preemptor]
        if len(world.others) == 1:
            assert in_use[preemptor] & devices[victim]
    alive = {each.name for each in scene.cluster.state.snapshot.pods.values()}
    assert priorities.keys() - alive == {*evicted, *(f"v{number}" for number in world.departed())}
    assert len(set(evicted)) == len(evicted) == scene.counted("preemption_victims_total")
    if len(world.others) == 1:
        assert scene.counted("preemption_victims_in_vain_total") == 0


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(waiting=4))
def test_nobody_dies_for_a_pod_of_equal_or_lower_priority_nor_in_vain_for_a_pod_that_waits_alone(world: World) -> None:
    async def main() -> None:
        scene = Scene(Cluster.of(*map(_slow, world.objects())))
        order = sorted(range(len(world.others)), key=lambda number: (-world.others[number][2], number))
        devices = await preempted(scene, [f"p{number}" for number in order])
        event(f"victims: {len(scene.told)}")
        check(scene, world, devices)

    virtualtime.run(main())


@dataclass(frozen=True)
class Round:
    """What happens before the task has its turns.

    Attributes:
        tried: numbers of the pods that a scheduler tries, in this order.
        ending: numbers of the holders that come to their end, if they are terminating.
    """

    tried: Sequence[int]
    ending: set[int]


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[Round]]:
    """Up to four pods wait; they are tried in any order, some for the first time when others have been evicted for."""
    world = draw(worlds(waiting=4, departing=False))
    tried = st.lists(st.integers(0, len(world.others) - 1), unique=True)
    ending = st.sets(st.integers(0, len(world.holders) - 1)) if world.holders else st.just(set[int]())
    return world, draw(st.lists(st.builds(Round, tried, ending), max_size=6))


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
        await scene.turns()
        for waiting in scene.cluster.state.snapshot.pods.values():
            kept.setdefault(waiting.name, set()).update(map(str, waiting.kept.devices))
    return devices, kept


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories())
def test_each_pod_has_the_devices_of_its_victims_unless_a_pod_of_higher_priority_has_what_was_kept(
    history: tuple[World, list[Round]],
) -> None:
    world, rounds = history

    async def main() -> None:
        scene = Scene(Cluster.of(*map(_slow, world.objects())))
        devices, kept = await played(scene, world, rounds)
        priorities = {f"p{number}": priority for number, (_, _, priority) in enumerate(world.others)}
        victims: dict[str, list[str]] = {}
        for victim, text in scene.told:
            victims.setdefault(text.split()[3].removeprefix("ns/"), []).append(victim)
        event(f"pods with victims: {len(victims)}")
        for preemptor, evicted in victims.items():
            higher = (name for name, priority in priorities.items() if priority > priorities[preemptor])
            is_overtaken = any(devices.get(name, set()) & kept[preemptor] for name in higher)
            event(f"overtaken: {is_overtaken}")
            used = devices.get(preemptor, set())
            assert is_overtaken or all(used & devices[victim] for victim in evicted), f"{evicted} for {preemptor}"
        assert scene.counted("preemption_victims_in_vain_total") == 0
        pending = [name for name in priorities if scene.is_pending(name)]
        end = scene.cluster.state.snapshot
        assert not [name for name in pending if choose(scene.known(name), NODES, end, SOLVER)], "eviction would help"

    virtualtime.run(main())


def _slow(raw: Object) -> Object:
    """Pods that run take their time to terminate."""
    if raw["kind"] == "Pod" and raw["spec"].get("nodeName"):
        raw["metadata"]["finalizers"] = ["example.com/slow"]
    return raw
