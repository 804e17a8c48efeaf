"""Laws of explanations, over generated clusters: they agree with filter, and every proposal does what it says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import (
    AllocationMode,
    AllocationResult,
    Claim,
    ClaimSpec,
    Consumer,
    DeviceId,
    DeviceResult,
    Node,
    Quantity,
    Selectors,
)
from allocator.obstacles import conditions_of
from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Conclusion, Explanation, as_json
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod, PodClaim
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.filter import filter_nodes
from extender.planning.changes import ProposedChange, combined, configured
from tests.allocator.strategies import Puzzle, puzzles
from tests.allocator.worlds import SELECTORS, device
from tests.kit.clusters import solver

NODES = ("node-1", "node-2")
ASKING = Pod("default", "asking", "uid-asking")


def pod_of(puzzle: Puzzle) -> Pod:
    return replace(ASKING, claims=tuple(PodClaim(c.name, claim_name=c.name) for c in puzzle.claims))


def snapshot_of(puzzle: Puzzle) -> Snapshot:
    """The puzzle's node, another one without devices, the claims that are asked for, and those that hold devices."""
    snapshot = EMPTY
    for name in NODES:
        snapshot = snapshot.with_node(NodeObject(Node(name)))
    for each in puzzle.world.slices:
        snapshot = snapshot.with_slice(each)
    for device_class in puzzle.world.classes.values():
        snapshot = snapshot.with_class(device_class)
    for number, result in enumerate(held_by_others(puzzle)):
        snapshot = snapshot.with_claim(holding(f"other-{number}", result))
        snapshot = snapshot.with_pod(Pod("default", f"user-{number}", f"uid-user-{number}", node_name="node-1"))
    for claim in puzzle.claims:
        snapshot = snapshot.with_claim(ClaimObject(claim, "", "", b"{}"))
    assert snapshot.usage == puzzle.world.usage
    return snapshot


def held_by_others(puzzle: Puzzle) -> list[DeviceResult]:
    found = []
    for pool, devices in puzzle.world.usage.pools.items():
        for name, usage in devices.items():
            result = DeviceResult("r", DeviceId(*pool, name))
            if not usage.holders:
                consumed = {amount: Quantity.from_nano(nano) for amount, nano in usage.consumed.items()}
                result = replace(result, share_id="held", consumed_capacity=consumed)
            found.append(result)
    return found


def holding(name: str, result: DeviceResult) -> ClaimObject:
    user = Consumer("pods", name.replace("other", "user"), f"uid-{name.replace('other', 'user')}")
    claim = Claim("default", name, f"uid-{name}", ClaimSpec(), AllocationResult((result,)), (user,))
    return ClaimObject(claim, "", "", b'{"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}')


def solver_of(puzzle: Puzzle) -> Solver:
    return replace(solver(), selectors=SELECTORS, features=puzzle.world.features)


def explained(puzzle: Puzzle) -> tuple[Explanation, Snapshot, Solver]:
    snapshot, using = snapshot_of(puzzle), solver_of(puzzle)
    return Explainer.alone(snapshot, using).explain(pod_of(puzzle)), snapshot, using


def after(changes: Sequence[ProposedChange], snapshot: Snapshot, using: Solver) -> tuple[Snapshot, Solver]:
    return combined(changes)(snapshot), replace(using, features=configured(changes, using.features))


def passed(pod: Pod, snapshot: Snapshot, using: Solver) -> list[str]:
    return list(filter_nodes(pod, NODES, snapshot, using).passed)


@given(puzzles())
def test_an_explanation_agrees_with_filter(puzzle: Puzzle) -> None:
    found, snapshot, using = explained(puzzle)
    result = filter_nodes(pod_of(puzzle), NODES, snapshot, using)
    assert (found.verdict is Conclusion.FITS) == bool(result.passed)
    assert {place.node for place in found.places} == set(result.passed)
    assert {name: group.reason for group in found.nodes for name in group.nodes} == result.unresolvable.in_words()


@given(puzzles())
def test_applying_any_proposal_makes_the_pod_fit(puzzle: Puzzle) -> None:
    found, snapshot, using = explained(puzzle)
    for proposal in found.proposals:
        assert proposal.node in passed(pod_of(puzzle), *after(proposal.changes, snapshot, using)), str(found)


@given(puzzles())
def test_no_change_of_a_proposal_can_be_left_out(puzzle: Puzzle) -> None:
    found, snapshot, using = explained(puzzle)
    for proposal in found.proposals:
        for change in proposal.changes:
            rest = [each for each in proposal.changes if each is not change]
            assert proposal.node not in passed(pod_of(puzzle), *after(rest, snapshot, using)), str(found)


@given(puzzles())
def test_proposals_come_smallest_first_and_none_contains_another(puzzle: Puzzle) -> None:
    found, _, _ = explained(puzzle)
    sizes = [sum(change.size for change in proposal.changes) for proposal in found.proposals]
    assert sizes == sorted(sizes)
    touched = [frozenset(change.what for change in proposal.changes) for proposal in found.proposals]
    assert not any(a <= b for i, a in enumerate(touched) for b in touched[i + 1 :])


@given(puzzles(all_mode=False))
def test_a_device_against_which_nothing_speaks_can_be_had(puzzle: Puzzle) -> None:
    request = puzzle.claims[0].spec.requests[0]
    wanted = replace(request.alternatives[0], name="", count=1, mode=AllocationMode.EXACT_COUNT)
    alone = replace(request, alternatives=(wanted,), prioritized=False)
    claim = replace(puzzle.claims[0], spec=ClaimSpec((alone,)))
    found, _, _ = explained(replace(puzzle, claims=(claim,)))
    if found.verdict is Conclusion.FITS_NOWHERE:
        assert [report.free for report in found.requests] == [0]
        assert found.requests[0].considered == len(puzzle.devices)
        assert sum(fallout.count for fallout in found.requests[0].fallouts) == len(puzzle.devices)


@given(puzzles())
def test_every_explanation_can_be_written(puzzle: Puzzle) -> None:
    found, _, _ = explained(puzzle)
    assert str(found).startswith("pod default/asking ")
    assert as_json(found)["verdict"] == found.verdict.value


PARTS = (
    "device.attributes['d'].a == 'x && y'",
    "true",
    "(false || true)",
    "[1, 2].exists(x, x == 1 && true)",
    'device.driver != "||"',
)


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4))
def test_conditions_are_what_is_joined(parts: list[str]) -> None:
    assert list(conditions_of(" && ".join(parts))) == parts


@given(st.lists(st.sampled_from(PARTS[1:]), min_size=2, max_size=4))
def test_a_selector_holds_if_its_conditions_do(parts: list[str]) -> None:
    selectors, some = Selectors(), device("d")
    text = " && ".join(parts)
    assert selectors.matches(text, some) == all(selectors.matches(each, some) for each in conditions_of(text))


@pytest.mark.parametrize("text", ["a || b && c", "a && b ? c : d", "a && b // && c", "a"])
def test_what_is_no_conjunction_is_one_condition(text: str) -> None:
    assert conditions_of(text) == (text,)
