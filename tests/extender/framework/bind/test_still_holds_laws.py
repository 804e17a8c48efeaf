"""The law of decisions that still hold: what was decided about a node is what would be decided now."""

import os
from dataclasses import replace
from typing import Final, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocation, AllocatorError, Claim
from allocator.model.features import ALL_FEATURES
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.timeline import Reach
from extender.framework.bind.plan import still_holds
from extender.framework.cycle import Cycle, open_cycle
from extender.framework.held_devices import found_on
from extender.framework.pods.claims import PodClaims
from tests.extender.framework.decisions.worlds import EXAMPLES, NODES, Asks, History, histories, play, synced, wishes
from tests.extender.plugins.gangs.events import EVENTS, NODE_NAMES, Event, happen
from tests.extender.plugins.gangs.scenes import Scene, members, nodes
from tests.kit.clusters import claim, network_slice, pod, solver

GANG_EXAMPLES: Final = int(os.environ.get("GANG_EXAMPLES", "25"))

POD = Pod("ns", "p", "uid-p")


class Step(NamedTuple):
    """Two snapshots, and what has changed in between."""

    before: Snapshot
    now: Snapshot
    reach: Reach


def case_in(snapshot: Snapshot, claims: tuple[Claim, ...]) -> Cycle:
    pending = tuple(ClaimObject(each, resource_version="1", created="", raw=b"{}") for each in claims)
    return Cycle(POD, PodClaims(pending=pending), snapshot, replace(solver(), features=ALL_FEATURES))


def answer(name: str, snapshot: Snapshot, claims: tuple[Claim, ...]) -> object:
    try:
        return case_in(snapshot, claims).at(snapshot.nodes[name])
    except AllocatorError as error:
        return type(error), str(error)


@settings(max_examples=EXAMPLES)
@given(histories(), wishes())
def test_what_rests_would_be_decided_again(history: History, claims: tuple[Claim, ...]) -> None:
    state = synced(history.beginning)
    first = before = state.snapshot
    steps = list[Step]()
    for number, step in enumerate(history.steps):
        if not isinstance(step, Asks):
            play(state, step, number)
            steps.append(Step(before, state.snapshot, state.since(before.version)))
            before = state.snapshot
    for before, now, reach in [*steps, Step(first, state.snapshot, state.since(first.version))]:
        for name in NODES:
            node = before.nodes.get(name)
            if node is not None and still_holds(case_in(before, claims), node, now, reach):
                assert answer(name, now, claims) == answer(name, before, claims)


def does_rest(scene: Scene, asked: Pod, name: str, step: Step) -> bool:
    cycle = open_cycle(asked, step.before, scene.solver)
    return isinstance(cycle, Cycle) and still_holds(cycle, step.before.nodes[name], step.now, step.reach)


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
    state, steps = scene.cluster.state, list[Step]()
    moments = [state.snapshot]
    for what, number in (("ask", 0), ("tick", 0), *events):
        await happen(scene, what, number)
        steps += [Step(each, state.snapshot, state.since(each.version)) for each in (moments[-1], *moments[-3:-2])]
        moments.append(state.snapshot)
    for step in steps:
        for asked in (each for each in step.before.pods.values() if each.is_pending):
            for name in step.before.nodes:
                if does_rest(scene, asked, name, step):
                    assert outcome(scene, asked, name, step.now) == outcome(scene, asked, name, step.before)


async def test_while_devices_are_kept_a_decision_rests_unless_it_has_read_what_changes() -> None:
    scene = Scene(*nodes("abc"), *members("x", 2), pod("s", "s-c"), claim("s-c"))
    for name in ("x0", "x1"):
        scene.filter(name, names="ab")
    await scene.turns(1)
    before, there = scene.cluster.state.snapshot, scene.known("x0").kept.node
    assert await scene.bind("x0", there) == ""
    state = scene.cluster.state
    step = Step(before, state.snapshot, state.since(before.version))
    assert {name: does_rest(scene, scene.known("s"), name, step) for name in "abc"} == {
        name: name != there for name in "abc"
    }
