"""The law of remembered decisions: over any history of a cluster, they are those that a fresh solve makes.

How many histories are tried is up to ``DECIDING_EXAMPLES``; `make test-laws` tries 10,000.
"""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocation, AllocatorError, Claim, Features
from allocator.model.features import ALL_FEATURES
from allocator.policies import POLICIES
from extender.cluster.indexes import AssumedAllocation
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import UNDECIDED, UNKNOWN_NODE, Verdict
from tests.extender.framework.decisions.worlds import (
    EXAMPLES,
    NODES,
    Asks,
    History,
    histories,
    play,
    result,
    some,
    synced,
    wishes,
)
from tests.kit.clusters import solver


def judged(fresh: Solver, world: Snapshot, found: NodeObject | None, claims: tuple[Claim, ...]) -> object:
    """A node's answer without any memory."""
    if found is None:
        return None, UNKNOWN_NODE
    answer = fresh.judge(world, found.node, claims)
    return (answer.merit, None) if isinstance(answer, Allocation) else (None, answer.reason)


def fresh_answers(fresh: Solver, world: Snapshot, names: Sequence[str], claims: tuple[Claim, ...]) -> object:
    try:
        return [judged(fresh, world, world.nodes.get(name), claims) for name in names]
    except AllocatorError as error:
        return type(error), str(error)


def told(verdict: Verdict) -> object:
    return verdict.merit, verdict.reason


@settings(max_examples=EXAMPLES)
@given(
    histories(),
    st.lists(wishes(), min_size=3, max_size=3),
    some(sorted(POLICIES)),
    some([Features(), ALL_FEATURES]),
)
def test_remembered_decisions_are_those_of_a_fresh_solve(
    history: History,
    pods: list[tuple[Claim, ...]],
    policy: str,
    features: Features,
) -> None:
    state = synced(history.beginning)
    fresh = replace(solver(), policy=POLICIES[policy], features=features)
    decider = Decider(fresh, state)
    for number, step in enumerate([*history.steps, *(Asks(wish, NODES, None) for wish in range(3))]):
        if not isinstance(step, Asks):
            play(state, step, number)
            continue
        base = world = state.snapshot
        if step.held is not None:
            world = base.assuming(AssumedAllocation("uid-other", "uid-nominated", result(*step.held)))
        claims = pods[step.wish]
        decider.follow(base)
        wanted = fresh_answers(fresh, world, step.names, claims)
        lookup = decider.lookup(claims, step.names, world)
        assert [place for place, v in enumerate(lookup.verdicts) if v is UNDECIDED] == list(lookup.missing)
        if isinstance(wanted, list):
            assert all(v is UNDECIDED or told(v) == each for v, each in zip(lookup.verdicts, wanted, strict=True))
        try:
            decided: object = [told(v) for v in decider.evaluate(lookup).verdicts]
        except AllocatorError as error:
            decided = type(error), str(error)
        assert decided == wanted
