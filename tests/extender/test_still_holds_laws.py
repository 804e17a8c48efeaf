"""The law of decisions that still hold: what was decided about a node is what would be decided now."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocation, AllocatorError, Claim
from allocator.model.features import ALL_FEATURES
from extender.cluster.change_log import Change
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.pods.claims import PodClaims
from extender.pods.decision_case import Case, open_case
from extender.pods.nominated.held_devices import found_on
from extender.pods.still_holds import still_holds
from tests.extender.decisions_worlds import EXAMPLES, NODES, Asks, History, histories, play, synced, wishes
from tests.extender.gang_events import EVENTS, NODE_NAMES, Event, happen
from tests.extender.ganging import Scene, members, nodes
from tests.kit.clusters import claim, network_slice, pod, solver

GANG_EXAMPLES: Final = int(os.environ.get("GANG_EXAMPLES", "25"))

POD = Pod("ns", "p", "uid-p")


def case_in(snapshot: Snapshot, claims: tuple[Claim, ...]) -> Case:
    pending = tuple(ClaimObject(each, resource_version="1", created="", raw=b"{}") for each in claims)
    return Case(POD, PodClaims(pending=pending), snapshot, replace(solver(), features=ALL_FEATURES))


def answer(name: str, snapshot: Snapshot, claims: tuple[Claim, ...]) -> object:
    try:
        return case_in(snapshot, claims).at(snapshot.nodes[name])
    except AllocatorError as error:
        return type(error), str(error)


@settings(max_examples=EXAMPLES)
@given(histories(), wishes())
def test_what_rests_would_be_decided_again(history: History, claims: tuple[Claim, ...]) -> None:
    state = synced(history.beginning)
    moments = [state.snapshot]
    for number, step in enumerate(history.steps):
        if not isinstance(step, Asks):
            play(state, step, number)
            moments.append(state.snapshot)
    for before, now in [*pairwise(moments), (moments[0], moments[-1])]:
        changes = state.changes_since(before.version)
        within = None if changes is None else [each for each in changes if each.version <= now.version]
        for name in NODES:
            node = before.nodes.get(name)
            if node is not None and still_holds(case_in(before, claims), node, now, within):
                assert answer(name, now, claims) == answer(name, before, claims)


def between(scene: Scene, before: Snapshot, now: Snapshot) -> Sequence[Change] | None:
    changes = scene.cluster.state.changes_since(before.version)
    return None if changes is None else [each for each in changes if each.version <= now.version]


def does_rest(scene: Scene, asked: Pod, name: str, before: Snapshot, now: Snapshot) -> bool:
    case = open_case(asked, before, scene.solver)
    return isinstance(case, Case) and still_holds(case, before.nodes[name], now, between(scene, before, now))


def outcome(scene: Scene, asked: Pod, name: str, snapshot: Snapshot) -> object:
    found = found_on(snapshot.nodes[name], asked, snapshot, scene.solver)
    return found.results if isinstance(found, Allocation) else found.reason


@settings(max_examples=GANG_EXAMPLES, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans(), st.lists(EVENTS, max_size=15))
async def test_what_rests_beside_nominated_pods_would_be_decided_again(
    sizes: list[int], is_net: bool, events: list[Event]
) -> None:
    gangs = [each for number, size in enumerate(sizes) for each in members(f"g{number}-", size)]
    singles = [
        each for place, name in enumerate("st") for each in (pod(name, f"{name}-c", priority=place), claim(f"{name}-c"))
    ]
    net = [network_slice("net", 1)] if is_net else []
    scene = Scene(*nodes(NODE_NAMES, 2), *net, *gangs, *singles)
    moments = [scene.cluster.state.snapshot]
    for what, number in (("ask", 0), ("tick", 0), *events):
        await happen(scene, what, number)
        moments.append(scene.cluster.state.snapshot)
    for before, now in [*pairwise(moments), *zip(moments, moments[3:], strict=False)]:
        for asked in (each for each in before.pods.values() if each.is_pending):
            for name in before.nodes:
                if does_rest(scene, asked, name, before, now):
                    assert outcome(scene, asked, name, now) == outcome(scene, asked, name, before)


async def test_while_devices_are_kept_a_decision_rests_unless_it_has_read_what_changes() -> None:
    scene = Scene(*nodes("abc"), *members("x", 2), pod("s", "s-c"), claim("s-c"))
    for name in ("x0", "x1"):
        scene.filter(name, names="ab")
    await scene.turns(1)
    before, there = scene.cluster.state.snapshot, scene.known("x0").kept.node
    assert await scene.bind("x0", there) == ""
    now = scene.cluster.state.snapshot
    assert {name: does_rest(scene, scene.known("s"), name, before, now) for name in "abc"} == {
        name: name != there for name in "abc"
    }
