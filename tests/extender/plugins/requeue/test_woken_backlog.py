"""Many woken pods with devices kept: what each finds, at the cost of its own node instead of that of all others."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocation, DeviceId
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cluster_with_kept import ClusterWithKept
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Memories, Solver
from extender.framework.filter import filter_nodes
from extender.framework.held_devices import found_on, held_for_nominated
from extender.framework.rejected_pods import MOST_AT_ONCE, Attention, Candidate, RejectedPod
from extender.kube.api import ObjectKey
from extender.plugins.requeue.requeue import judge_pods
from extender.tools.fairness import Turns
from tests.extender.plugins.requeue.scenes import waiting
from tests.kit.clusters import DRIVER, GPU, Cluster, Object, claim, local_slice, network_slice, node, pod, solver

EXAMPLES: Final = int(os.environ.get("WOKEN_BACKLOG_EXAMPLES", "60"))
NODES: Final = "abc"
DEVICES: Final = 3

PODS: Final = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=7)
"""The priority of each pod, and whether it shares a claim with the other pods of which this is so."""
KEPT: Final = st.lists(st.tuples(st.integers(0, 6), st.integers(0, len(NODES) - 1), st.integers(0, DEVICES - 1)))
"""For which pod, by number, which device of which node is kept."""
TAKEN: Final = st.lists(
    st.tuples(st.integers(0, len(NODES) - 1), st.integers(0, DEVICES - 1), st.sampled_from(["runs", "leaves", "gone"])),
    unique_by=lambda each: each[:2],
)
"""Devices of nodes that another pod has from then on, by number, and what it does."""


def cluster_of(pods: Sequence[tuple[int, bool]], more: Sequence[Object] = ()) -> Cluster:
    objects = [GPU, claim("shared"), *more]
    for name in NODES:
        objects += [node(name), local_slice(name, DEVICES)]
    for number, (priority, shares) in enumerate(pods):
        of = "shared" if shares else f"p{number}-c"
        objects += [pod(f"p{number}", of, priority=priority)]
        objects += [] if shares else [claim(of)]
    return Cluster.of(*objects)


def take(cluster: Cluster, at: int, number: int, does: str) -> None:
    """Another pod has a device of a node, and runs, leaves, or is gone, with its claim left behind."""
    on, name = NODES[at], f"thief-{NODES[at]}-{number}"
    if does != "gone":
        cluster.load(pod(name, name, on=on, deleting=does == "leaves"))
    cluster.load(claim(name, allocated=[f"{on}/gpu-{number}"], at=on, users=[name]))


def device(on: str, number: int) -> DeviceId:
    return DeviceId(DRIVER, on, f"gpu-{number}")


def pods_of(snapshot: Snapshot) -> list[Pod]:
    return [each for _, each in sorted(snapshot.pods.items())]


def followed(cluster: Cluster) -> tuple[ClusterWithKept, Solver]:
    by = solver()
    return ClusterWithKept(Decider(by, cluster.state), cluster.state), by


@settings(max_examples=EXAMPLES, deadline=None)
@given(PODS, KEPT, TAKEN, st.booleans())
def test_a_pod_finds_what_is_kept_for_all_others_held(
    pods: list[tuple[int, bool]], kept: list[tuple[int, int, int]], taken: list[tuple[int, int, str]], is_net: bool
) -> None:
    cluster = cluster_of(pods, [network_slice("net", 1)] if is_net else [])
    world_of_kept, by = followed(cluster)
    for keeps, takes in zip_longest(kept, taken):
        if keeps is not None:
            number, at, name = keeps
            known = cluster.state.snapshot.pods.get(ObjectKey("ns", f"p{number}"))
            if known is not None:
                cluster.state.keep_for(known.uid, Keeping(NODES[at], (device(NODES[at], name),)))
        if takes is not None:
            take(cluster, *takes)
        snapshot = cluster.state.snapshot
        for each in pods_of(snapshot):
            anew = replace(by, memories=Memories())
            world, decider = world_of_kept.world_of(each, snapshot, by)
            assert held_for_nominated(each, world, by).usage == held_for_nominated(each, snapshot, anew).usage
            found = filter_nodes(each, NODES, world, by, decider=decider)
            assert replace(found, steps=0) == replace(filter_nodes(each, NODES, snapshot, anew), steps=0)


@settings(max_examples=EXAMPLES, deadline=None)
@given(PODS, KEPT, st.lists(st.tuples(st.integers(0, 6), st.integers(0, len(NODES) - 1))), st.booleans())
def test_on_one_node_as_much_is_held_as_if_all_nodes_were_looked_at(
    pods: list[tuple[int, bool]], kept: list[tuple[int, int, int]], nominated: list[tuple[int, int]], is_net: bool
) -> None:
    cluster = cluster_of(pods, [network_slice("net", 2)] if is_net else [])
    by, state = solver(), cluster.state
    known = pods_of(state.snapshot)
    for number, at, name in kept:
        if number < len(known):
            state.keep_for(known[number].uid, Keeping(NODES[at], (device(NODES[at], name),)))
    snapshot = state.snapshot
    for number, on in nominated:
        if number < len(known):
            snapshot = snapshot.with_pod(replace(known[number], nominated_node=NODES[on]))
    for each in pods_of(snapshot):
        everywhere = held_for_nominated(each, snapshot, replace(by, memories=Memories())).usage.pools
        for there in NODES:
            here = held_for_nominated(each, snapshot, replace(by, memories=Memories()), on=there).usage.pools
            reached = [view.id for view in snapshot.inventory.for_node(snapshot.nodes[there].node, by.features)]
            assert [here.get(pool) for pool in reached] == [everywhere.get(pool) for pool in reached]


def one_by_one(candidates: Sequence[Candidate], snapshot: Snapshot, by: Solver) -> tuple[list[Keeping], list[Pod]]:
    """What each pod would be woken for if each was judged anew, beside those before; and the pods that find nothing."""
    kept, refused = list[Keeping](), list[Pod]()
    for _, each, names in candidates:
        if len(kept) == MOST_AT_ONCE:
            break
        passed = [name for name in names if filter_nodes(each, [name], snapshot, by).passed]
        if not passed:
            refused.append(each)
            continue
        found = found_on(snapshot.nodes[passed[0]], each, snapshot, by)
        assert isinstance(found, Allocation)
        devices = tuple(sorted({result.device for result in found.results[0].results}))
        kept.append(Keeping(passed[0], devices))
        snapshot = snapshot.with_woken(each.uid, kept[-1])
    return kept, refused


@settings(max_examples=EXAMPLES, deadline=None)
@given(PODS, KEPT, st.permutations(range(7)))
def test_pods_are_judged_as_if_each_was_judged_anew_beside_those_before(
    pods: list[tuple[int, bool]], kept: list[tuple[int, int, int]], order: list[int]
) -> None:
    cluster = cluster_of(pods)
    world_of_kept, by = followed(cluster)
    known = pods_of(cluster.state.snapshot)
    for number, at, name in kept:
        if number < len(known):
            cluster.state.keep_for(known[number].uid, Keeping(NODES[at], (device(NODES[at], name),)))
    snapshot = cluster.state.snapshot
    waiting_pods = [known[number] for number in order if number < len(known)]
    pending = [each for each in waiting_pods if each.uid not in snapshot.woken]
    candidates: list[Candidate] = [(RejectedPod(each, None, Attention.NOW), each, tuple(NODES)) for each in pending]
    judged = judge_pods(candidates, snapshot, world_of_kept, Turns(by.clock))
    expected, refused = one_by_one(candidates, snapshot, replace(by, memories=Memories()))
    assert [keeping for _, keeping in judged.fitting] == expected
    assert [each.pod for each in judged.refused] == refused


def looks_at_the_clock(woken: int) -> int:
    """How often the clock is looked at while one more pod is judged and then asked about: once for each held pod."""
    names = [f"n{number}" for number in range(woken + 1)]
    machines = [each for name in names for each in (node(name), local_slice(name, 1))]
    cluster = Cluster.of(GPU, *machines, *waiting(*(f"p{number}" for number in range(woken + 1))))
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    by = replace(solver(), clock=clock)
    kept = ClusterWithKept(Decider(by, cluster.state), cluster.state)
    for number in range(woken):
        known = cluster.state.snapshot.pods[ObjectKey("ns", f"p{number}")]
        cluster.state.keep_for(known.uid, Keeping(names[number], (device(names[number], 0),)))
    snapshot = cluster.state.snapshot
    last, first = (snapshot.pods[ObjectKey("ns", f"p{number}")] for number in (woken, 0))
    world, decider = kept.world_of(last, snapshot, by)
    filter_nodes(last, names, world, by, decider=decider)
    before = looks
    judged = judge_pods([(RejectedPod(last, None, Attention.NOW), last, names)], snapshot, kept, Turns(by.clock))
    assert [keeping.node for _, keeping in judged.fitting] == [names[-1]]
    world, decider = kept.world_of(first, snapshot, by)
    assert set(filter_nodes(first, names, world, by, decider=decider).passed) == {names[0], names[-1]}
    return looks - before


def test_what_is_kept_for_others_costs_nothing_for_each_pod() -> None:
    assert looks_at_the_clock(40) <= looks_at_the_clock(2) + 2
