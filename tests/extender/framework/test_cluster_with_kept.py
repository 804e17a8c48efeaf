"""What pods find beside the devices that are kept: the same, whether it is kept up with the cluster or made anew."""

import os
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.cluster_state import ClusterState
from extender.cluster.indexes import ANY_NODE_SUITS
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cluster_with_kept import ClusterWithKept
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Memories, Solver
from extender.framework.filter import filter_nodes
from extender.framework.held_devices import held_for_nominated
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES, Resource
from extender.plugins.gangs.gang import gang_at, gang_refusal
from tests.extender.plugins.gangs.events import EVENTS, NODE_NAMES, Event, happen
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.extender.plugins.negotiation.scenes import negotiated_class
from tests.kit.clusters import GPU, Object, claim, local_slice, network_slice, node, pod, request

EXAMPLES: Final = int(os.environ.get("GANG_EXAMPLES", "25"))


def cluster_with_kept(scene: Scene) -> ClusterWithKept:
    return ClusterWithKept(Decider(scene.solver, scene.cluster.state), scene.cluster.state)


def beside(kept: ClusterWithKept, asked: Pod, snapshot: Snapshot, solver: Solver) -> Snapshot | None:
    """The world that a pod finds; None: it finds another, or it is not known."""
    world, decider = kept.world_of(asked, snapshot, solver)
    return None if decider is kept.of_cluster else world


def decider_of(kept: ClusterWithKept, scene: Scene) -> Decider:
    now = kept.at(scene.cluster.state.snapshot, scene.solver)
    assert now is not None
    return now.decider


def pod_in(scene: Scene, name: str) -> tuple[Pod, Snapshot]:
    return scene.known(name), scene.cluster.state.snapshot


def assert_same(scene: Scene, kept: ClusterWithKept) -> None:
    """Every pending pod finds the same beside what is kept, whatever is known and remembered."""
    for name in scene.pending():
        asked, snapshot = pod_in(scene, name)
        forgetful = replace(scene.solver, memories=Memories())
        anew = held_for_nominated(asked, snapshot, forgetful)
        assert held_for_nominated(asked, snapshot, scene.solver).usage == anew.usage
        found = beside(kept, asked, snapshot, scene.solver)
        if found is None:
            continue
        assert held_for_nominated(asked, found, scene.solver).usage == anew.usage
        names = sorted(snapshot.nodes)
        known = filter_nodes(asked, names, found, scene.solver, decider=decider_of(kept, scene))
        fresh = filter_nodes(asked, names, snapshot, forgetful)
        assert replace(known, steps=0) == replace(fresh, steps=0)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.booleans(),
    st.lists(EVENTS, max_size=15),
    st.sets(st.integers(0, 16)),
)
async def test_a_world_that_follows_is_the_one_that_is_made_anew(
    sizes: list[int], is_net: bool, events: list[Event], hurried: set[int]
) -> None:
    """After the hurried events, there is no time at first to find out what is held."""
    gangs = [each for number, size in enumerate(sizes) for each in members(f"g{number}-", size)]
    singles = [each for name in ("s", "t") for each in (pod(name, f"{name}-c"), claim(f"{name}-c"))]
    net = [network_slice("net", 1)] if is_net else []
    scene = Scene(*nodes(NODE_NAMES, 2), *net, *gangs, *singles)
    kept = cluster_with_kept(scene)
    for place, (what, number) in enumerate((("ask", 0), ("tick", 0), *events)):
        await happen(scene, what, number)
        if place in hurried:
            kept.at(scene.cluster.state.snapshot, scene.solver.within(scene.now - 1))
        assert_same(scene, kept)


async def planned(*more: Object) -> Scene:
    """Devices of nodes a and b are kept for a gang of two; node c is free."""
    scene = Scene(*nodes("abc"), *members("x", 2), pod("s", "s-c"), claim("s-c"), *more)
    for name in ("x0", "x1"):
        scene.filter(name, names="ab")
    await scene.turns(1)
    return scene


def rack_slice(node_name: str) -> Object:
    """The slice of a node in a pool that two nodes publish together."""
    made = local_slice(node_name, 1)
    made["spec"]["pool"] = {"name": "rack", "generation": 1, "resourceSliceCount": 2}
    made["spec"]["devices"][0]["name"] = f"gpu-{node_name}"
    return made


async def touch(scene: Scene, name: str) -> None:
    """A change of a pod that changes nothing for devices."""
    status = {"status": {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}}
    await scene.cluster.api.patch_status(PODS, ObjectKey("ns", name), status)


async def test_a_pool_of_several_nodes_is_looked_at_anew_for_each_pod() -> None:
    objects = (*(node(name) for name in "abc"), rack_slice("a"), rack_slice("b"), local_slice("c"))
    scene = Scene(GPU, *objects, *members("x", 2), pod("s", "s-c"), claim("s-c"))
    for name in ("x0", "x1"):
        scene.filter(name, names="ab")
    await scene.turns(1)
    kept = cluster_with_kept(scene)
    for _ in range(2):
        assert beside(kept, *pod_in(scene, "s"), scene.solver) is None
        await touch(scene, "x1")


async def test_what_was_not_found_out_in_time_is_tried_again() -> None:
    scene = await planned()
    kept = cluster_with_kept(scene)
    assert beside(kept, *pod_in(scene, "s"), scene.solver.within(scene.now - 1)) is None
    assert beside(kept, *pod_in(scene, "s"), scene.solver) is not None


async def test_without_a_change_it_is_tried_again_after_nine_times_as_long() -> None:
    scene = await planned()
    times = iter([0.0, 0.0, 3.0])
    slow = replace(scene.solver, clock=lambda: next(times, 3.0)).within(1)
    kept, snapshot = cluster_with_kept(scene), scene.cluster.state.snapshot
    found = [kept.at(snapshot, slow)]
    found += [kept.at(snapshot, replace(scene.solver, clock=partial(float, now))) for now in (29.9, 30.0)]
    assert [each is not None and each.held.are_undecided for each in found] == [True, True, False]


@pytest.mark.parametrize("order", [(CLAIMS, PODS), (PODS, CLAIMS)], ids=["claims first", "pods first"])
async def test_a_gang_whose_device_was_taken_is_not_ready_whatever_is_listed_first(order: list[Resource]) -> None:
    scene = await planned(pod("t", "thief", on="b"))
    taken = claim("thief", allocated=["b/gpu-0"], at="b", users=["t"])
    await scene.cluster.api.create(CLAIMS, taken)
    await scene.cluster.api.patch_status(CLAIMS, ObjectKey("ns", "thief"), {"status": taken["status"]})
    state = ClusterState()
    for resource in (NODES, CLASSES, SLICES, *order):
        listing = await scene.cluster.api.list(resource)
        state.replace(resource, listing.items, listing.revision)
    snapshot = state.snapshot
    (key,) = snapshot.gangs.members
    gang = gang_at(key, snapshot)
    assert gang is not None
    assert [str(each) for each in gang.lost] == ["ns/x1"]
    refusal = gang_refusal(scene.known("x0"), snapshot)
    assert refusal is not None
    assert "waiting for devices" in refusal.in_words()


async def test_a_plain_pod_finds_the_world_in_which_kept_devices_are_held() -> None:
    scene = await planned()
    asked, snapshot = pod_in(scene, "s")
    kept = cluster_with_kept(scene)
    found = beside(kept, asked, snapshot, scene.solver)
    assert found is not None
    assert filter_nodes(asked, "abc", found, scene.solver, decider=decider_of(kept, scene)).passed == ("c",)


LICENSE = negotiated_class()


async def test_a_controller_of_other_claims_changes_nothing() -> None:
    scene = await planned(LICENSE, claim("l-c", request(device_class="license")), pod("l", "l-c"))
    asked, snapshot = pod_in(scene, "s")
    kept = cluster_with_kept(scene)
    found = beside(kept, asked, snapshot, scene.solver)
    assert found is not None
    with_answers = snapshot._replace(answers=snapshot.answers.set("uid-l-c", ANY_NODE_SUITS))
    assert beside(kept, asked, with_answers, scene.solver) is found
    assert beside(kept, *pod_in(scene, "l"), scene.solver) is None, "answers count for this pod, and make no version"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([pod("t", "t-c", priority=1), claim("t-c")], id="it may take what is kept"),
        pytest.param([pod("t", "x0-c")], id="it shares a claim with a pod of the gang"),
    ],
)
async def test_a_pod_that_may_have_kept_devices_finds_another_world(other: list[Object]) -> None:
    scene = await planned(*other)
    assert beside(cluster_with_kept(scene), *pod_in(scene, "t"), scene.solver) is None


async def test_a_pod_with_something_kept_for_it_finds_another_world() -> None:
    scene = await planned()
    assert beside(cluster_with_kept(scene), *pod_in(scene, "x0"), scene.solver) is None


async def test_a_change_costs_only_the_nodes_that_it_concerns() -> None:
    number = 32
    scene = Scene(*nodes(map(str, range(number + 2))), *members("x", number), pod("s", "s-c"), claim("s-c"))
    await scene.schedule([f"x{each}" for each in range(number)])
    await scene.turns(1)
    kept, names = cluster_with_kept(scene), sorted(scene.cluster.state.snapshot.nodes)

    def looks() -> int:
        asked, snapshot = pod_in(scene, "s")
        found, decider = beside(kept, asked, snapshot, scene.solver), decider_of(kept, scene)
        before = decider.solved
        assert found is not None
        assert len(filter_nodes(asked, names, found, scene.solver, decider=decider).passed) == 2
        return decider.solved - before

    looks()
    await scene.bind("x0", scene.known("x0").kept.node)
    assert looks() <= 1
