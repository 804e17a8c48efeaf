"""Forks of a large cluster: only nodes that may differ are looked at one by one, and each verdict is the right one."""

from collections.abc import Callable, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from allocator import AllocationResult, Claim, DeviceId, DeviceResult, parse_claim
from allocator.policies import Merit
from extender.cluster.objects.nodes import parse_node_object
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.node_index import NodeIndex, NodeViewBuilder
from tests.kit.clusters import DRIVER, GPU, claim, local_slice, network_slice, node, request, snapshot_of, solver

NODES: Final = [f"n{number}" for number in range(100)]
DEVICES: Final = 2
BASE: Final = snapshot_of(
    GPU,
    network_slice("net", DEVICES),
    *(each for name in NODES for each in (node(name), local_slice(name, DEVICES))),
)
Held = frozenset[tuple[str, int]]
held = st.frozensets(st.tuples(st.sampled_from(["net", *NODES[:8]]), st.integers(0, DEVICES - 1)), max_size=8)


def holding(taken: Held, snapshot: Snapshot = BASE) -> Snapshot:
    """The cluster in which some devices, by pool and number, are in use."""
    usage = snapshot.usage
    for pool, number in sorted(taken):
        usage = usage.with_allocation(AllocationResult((DeviceResult("r", DeviceId(DRIVER, pool, f"gpu-{number}")),)))
    return snapshot._replace(usage=usage)


def verdicts(decider: Decider, claims: Sequence[Claim], fork: Snapshot) -> list[tuple[Merit | None, str]]:
    found = decider.evaluate(decider.lookup(claims, [*NODES, "unknown"], fork)).verdicts
    return [(each.merit, "" if each.reason is None else str(each.reason)) for each in found]


@given(st.lists(held, min_size=2, max_size=5), st.integers(1, 3))
def test_verdicts_on_forks_are_those_of_a_decider_that_remembers_nothing(forks: list[Held], count: int) -> None:
    claims = [parse_claim(claim("c", request(count=count)))]
    decider = Decider(solver(), None)
    for version, taken in enumerate(forks):
        fork = holding(taken)
        if version % 2 == 0:
            decider.follow(fork._replace(version=version))
        assert verdicts(decider, claims, fork) == verdicts(Decider(solver(), None), claims, fork)


FORKS: Final[dict[str, tuple[Callable[[Snapshot], Snapshot], set[str] | None]]] = {
    "nothing": (lambda base: base._replace(version=base.version + 1), set()),
    "a device in use": (lambda base: holding(frozenset({("n3", 0)}), base), {"n3"}),
    "a device of all nodes": (lambda base: holding(frozenset({("net", 0)}), base), None),
    "CPU": (lambda base: base._replace(requested=Map({"n3": 1})), None),
    "a node": (lambda base: base._replace(nodes=base.nodes.set("m", parse_node_object(node("m")))), None),
}


@pytest.mark.parametrize(("change", "expected"), FORKS.values(), ids=FORKS)
def test_the_nodes_of_a_fork_that_may_differ(change: Callable[[Snapshot], Snapshot], expected: set[str] | None) -> None:
    index = NodeIndex.of(BASE, NodeViewBuilder(solver().features))
    fork = index.forked(change(BASE))
    assert fork is index if fork.below is None else fork.differing() == expected


@pytest.mark.parametrize(("change", "expected"), FORKS.values(), ids=FORKS)
def test_a_node_that_differs_in_no_fork_is_looked_at_once(
    change: Callable[[Snapshot], Snapshot], expected: set[str] | None
) -> None:
    index = NodeIndex.of(BASE, NodeViewBuilder(solver().features))
    forks = [index.forked(change(BASE)) for _ in range(2)]
    for name in ("n1", "n3"):
        first, second = (fork.node_view(BASE.nodes[name]) for fork in forks)
        assert (first is second) is (expected is not None and name not in expected)
