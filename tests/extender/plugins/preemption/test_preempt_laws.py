"""The law of preemption: no other set of pods is smaller, nor one of that size preferable, by trying all sets."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

from hypothesis import event, given, settings
from hypothesis import strategies as st

from allocator.model.features import ALL_FEATURES
from extender.cluster.consumers import without_pods
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import fits
from extender.framework.victims import Victims
from extender.plugins.preemption.evictions import Evictions
from extender.plugins.preemption.plugin import choose_victims
from tests.extender.framework.decisions.scenes import pool_of, tolerates, wants
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Object,
    budget,
    claim,
    local_slice,
    node,
    parsed,
    pod,
    snapshot_of,
    solver,
    taint_rule,
)

EXAMPLES: Final = int(os.environ.get("PREEMPT_EXAMPLES", "200"))
ATTRIBUTES: Final = f"device.attributes['{DRIVER}']"
IS_X: Final = f"'model' in {ATTRIBUTES} && {ATTRIBUTES}.model == 'x'"
PART: Final = {"consumesCounters": [{"counterSet": "set", "counters": {"parts": {"value": "1"}}}]}
TWO_PARTS: Final = {"consumesCounters": [{"counterSet": "set", "counters": {"parts": {"value": "2"}}}]}
SHARED: Final = {"allowMultipleAllocations": True}
MEMORY: Final = {"capacity": {"memory": {"value": "4Gi"}}}

DEVICES: Final[Sequence[Object]] = (
    MEMORY,
    MEMORY | {"attributes": {"model": {"string": "x"}}},
    MEMORY | {"attributes": {"model": {"string": "y"}}},
    MEMORY | PART,
    MEMORY | TWO_PARTS,
    MEMORY | SHARED,
)
WISHES: Final[Sequence[Sequence[Object]]] = (
    [wants()],
    [wants(2)],
    [wants(3)],
    [wants(selector=IS_X)],
    [wants(selector=IS_X), wants(2, name="more")],
    [wants(cache="2Gi")],
    [wants(cache="3Gi"), wants(name="more")],
    [tolerates(operator="Exists")],
)


@dataclass(frozen=True)
class Holder:
    """A running pod.

    Attributes:
        devices: it holds, by number; each belongs to one pod, unless it is shared.
        shares_with: number of another pod that uses its claim, too; its own number if there is none.
        app: selected by a budget.
    """

    devices: tuple[int, ...]
    shares_with: int
    priority: int
    created: int
    app: str


@dataclass(frozen=True)
class World:
    """A node with devices, pods that hold them, and what the next pod asks for."""

    devices: Sequence[Object]
    holders: Sequence[Holder]
    wanted: Sequence[Object]
    tainted: bool
    allowed: dict[str, int]

    def objects(self) -> Iterator[Object]:
        yield from (GPU, node("a"), self._slice(), claim("c", *self.wanted), *self._counters())
        yield from (budget(app, {"app": app}, allowed) for app, allowed in self.allowed.items())
        if self.tainted:
            yield taint_rule("r", device="gpu-0")
        names = [f"v{number}" for number in range(len(self.holders))]
        claims: dict[str, list[str]] = {name: [f"{name}-c"] for name in names}
        users: dict[str, list[str]] = {f"{name}-c": [name] for name in names}
        for name, holder in zip(names, self.holders, strict=True):
            other = names[holder.shares_with]
            if other != name:
                claims[other].append(f"{name}-c")
                users[f"{name}-c"].append(other)
        for name, holder in zip(names, self.holders, strict=True):
            yield self._held(f"{name}-c", holder, users[f"{name}-c"])
            created = f"2026-01-0{holder.created}T00:00:00Z"
            labels = {"app": holder.app}
            yield pod(name, *claims[name], on="a", priority=holder.priority, labels=labels, created=created)

    def _slice(self) -> Object:
        raw = pool_of("a", *self.devices)
        raw["spec"]["pool"]["resourceSliceCount"] = 2
        return raw

    def _counters(self) -> Iterator[Object]:
        raw = local_slice("a", 0)
        raw["metadata"]["name"] = "counters"
        del raw["spec"]["devices"]
        raw["spec"]["pool"]["resourceSliceCount"] = 2
        raw["spec"]["sharedCounters"] = [{"name": "set", "counters": {"parts": {"value": "3"}}}]
        yield raw

    def _held(self, name: str, holder: Holder, users: Sequence[str]) -> Object:
        raw = claim(name, wants(), allocated=[f"a/gpu-{each}" for each in holder.devices], at="a", users=users)
        for number, result in zip(holder.devices, raw["status"]["allocation"]["devices"]["results"], strict=True):
            if "allowMultipleAllocations" in self.devices[number]:
                share = f"00000000-0000-4000-8000-{int(name[1:-2]):012}"
                result |= {"shareID": share, "consumedCapacity": {"memory": "1Gi"}}
        return raw


@st.composite
def worlds(draw: st.DrawFn) -> World:
    devices = draw(st.lists(st.sampled_from(DEVICES), min_size=2, max_size=7))
    free = [number for number, device in enumerate(devices) if "allowMultipleAllocations" not in device]
    shared = [number for number in range(len(devices)) if number not in free]
    holders: list[Holder] = []
    count = draw(st.integers(2, 7))
    for number in range(count):
        taken = tuple(free.pop(0) for _ in range(min(len(free), draw(st.sampled_from((1, 1, 1, 2))))))
        if shared and (not taken or draw(st.booleans())):
            taken = (*taken, draw(st.sampled_from(shared)))
        if not taken:
            break
        holders.append(
            Holder(
                taken,
                draw(st.sampled_from((number, number, number, 0))),
                draw(st.integers(0, 3)),
                draw(st.integers(1, 3)),
                draw(st.sampled_from(("", "", "db", "web"))),
            )
        )
    allowed = {app: draw(st.integers(0, 2)) for app in ("db", "web") if draw(st.booleans())}
    return World(devices, holders, draw(st.sampled_from(WISHES)), draw(st.booleans()), allowed)


def rank(pods: Sequence[Pod], allowed: dict[str, int]) -> tuple[Any, ...]:
    apps = [each.labels["app"] for each in pods]
    broken = sum(max(0, apps.count(app) - most) for app, most in allowed.items())
    priorities = [each.priority for each in pods]
    return len(pods), broken, max(priorities, default=0), sum(priorities)


def best(asked: Pod, snapshot: Snapshot, world: World) -> tuple[Any, ...] | None:
    """The rank of the best set of pods whose eviction makes room; None if there is none."""
    solving = replace(solver(), features=ALL_FEATURES)
    running = [other for other in snapshot.pods_on("a") if other.priority < asked.priority]
    for size in range(len(running) + 1):
        sets = combinations(running, size)
        node_object = snapshot.nodes["a"]
        enough = [each for each in sets if fits(asked, node_object, without_pods(snapshot, each), solving)]
        if enough:
            return min(rank(each, world.allowed) for each in enough)
    return None


@settings(max_examples=EXAMPLES)
@given(worlds(), st.integers(2, 4))
def test_the_fewest_pods_go_and_of_several_sets_the_one_that_kube_scheduler_prefers(
    world: World, priority: int
) -> None:
    snapshot = snapshot_of(*world.objects())
    asked = parsed(pod("p", "c", priority=priority))
    chosen = choose_victims(asked, {"a": Victims(("u",))}, snapshot, replace(solver(), features=ALL_FEATURES))
    wanted = best(asked, snapshot, world)
    event(f"victims: {wanted and wanted[0]}")
    if wanted is None:
        assert chosen == {}
        return
    added = [found for uid in chosen["a"].uids[1:] if (found := snapshot.pod(uid)) is not None]
    assert rank(added, world.allowed) == wanted
    assert chosen["a"].pdb_violations == wanted[1]


@settings(max_examples=EXAMPLES)
@given(worlds())
def test_it_makes_no_difference_which_pods_of_a_kind_go(world: World) -> None:
    snapshot, solving = snapshot_of(*world.objects()), replace(solver(), features=ALL_FEATURES)
    asked, on = parsed(pod("p", "c", priority=4)), snapshot.nodes["a"]
    evictions = Evictions.of(asked, on, (), snapshot.pods_on(on.name), snapshot, solving)
    pods = [each.pod for each in evictions.candidates]
    kinds = evictions.kinds(solving)
    for one, other in combinations(range(len(pods)), 2):
        if kinds[one] != kinds[other]:
            continue
        event("two of a kind")
        others = [each for number, each in enumerate(pods) if number not in {one, other}]
        for size in range(len(others) + 1):
            for gone in combinations(others, size):
                first, second = (
                    fits(asked, on, without_pods(snapshot, (*gone, pods[each])), solving) for each in (one, other)
                )
                assert first == second
